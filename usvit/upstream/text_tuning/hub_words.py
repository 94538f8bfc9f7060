"""Text towers of the Hugging Face hub, by their own library: a tokenizer, and a transformer with its weights.

Only ``config.json``, ``tokenizer.json`` and safetensors are read: nothing is unpickled, and no code of the hub is run.
"""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from usvit.errors import UsvitError
from usvit.files import read_text
from usvit.models import hub_folder

FILLING = -1
"""Number of the filling after a text."""
_PATTERNS = ("config.json", "tokenizer.json", "*.safetensors", "*.safetensors.index.json")
_NOT_TAKEN = ("auto_map", "quantization_config", "attn_implementation", "_attn_implementation", "use_kernels")
"""Settings that could load code or another format."""


class HubWords:
    """The vocabulary of a text tower of the hub, and the shape of its transformer.

    Args:
        config: Content of its ``config.json``.
        tokenizer: Content of its ``tokenizer.json``.

    Raises:
        UsvitError: transformers is not installed.
        ValueError: A content is not readable.
    """

    def __init__(self, config: str, tokenizer: str):
        _need_library("A text tower of the hub")
        from tokenizers import Tokenizer

        self._config, self._tokenizer = config, tokenizer
        try:
            self._words = Tokenizer.from_str(tokenizer)
        except Exception as error:  # the library raises Exception itself
            raise ValueError(f"its tokenizer is not readable: {error}") from error
        self._words.no_padding()

    def __len__(self) -> int:
        return int(self._words.get_vocab_size())

    def header(self) -> dict[str, str]:
        """Return what is kept in the header of the tower's file."""
        return {"encoder": self._config, "tokenizer": self._tokenizer}

    def encoded(self, texts: Sequence[str], context: int) -> tuple[NDArray[np.int64], int]:
        """Return the numbers of texts, (n, context), filled up, and how many texts were cut."""
        self._words.enable_truncation(context)
        found, cut = np.full((len(texts), context), FILLING, dtype=np.int64), 0
        for row, one in zip(found, self._words.encode_batch(list(texts)), strict=True):
            row[: len(one.ids)] = one.ids
            cut += bool(one.overflowing)
        return found, cut

    def encoder(self, context: int) -> "HubEncoder":
        """Return the transformer with random weights.

        Raises:
            ValueError: The library does not know such a network, or it takes shorter texts only.
        """
        from transformers import AutoConfig, AutoModel

        settings = {key: one for key, one in json.loads(self._config).items() if key not in _NOT_TAKEN}
        config = AutoConfig.for_model(**settings)
        longest = getattr(config.get_text_config(), "max_position_embeddings", context)
        if longest < context:
            raise ValueError(f"it takes texts of {longest} numbers. Set text.context to {longest} or less")
        return encoder_of(AutoModel.from_config(config, trust_remote_code=False))


class HubEncoder(nn.Module):
    """The text part of a network of the hub.

    Args:
        transformer: Takes ``input_ids`` and ``attention_mask``.
    """

    def __init__(self, transformer: nn.Module, width: int):
        super().__init__()
        self.transformer, self.width = transformer, width

    def forward(self, numbers: Tensor) -> Tensor:
        """Return the vector of each text, (n, W): what the network pools, or the mean of its tokens.

        Args:
            numbers: (n, L), as ``HubWords.encoded`` gives them.
        """
        read = numbers != FILLING
        found = self.transformer(input_ids=numbers.clamp(min=0), attention_mask=read.long())
        pooled: Tensor | None = getattr(found, "pooler_output", None)
        if pooled is not None:
            return pooled
        hidden: Tensor = found.last_hidden_state
        return (hidden * read[:, :, None]).sum(1) / read.sum(1, keepdim=True)


def encoder_of(network: Any) -> HubEncoder:
    """Return the text part of a network of transformers: of CLIP its text model, of T5 its encoder."""
    whole = network.get_encoder() if network.config.is_encoder_decoder else network
    return HubEncoder(getattr(whole, "text_model", whole), network.config.get_text_config().hidden_size)


def hub_words(tower: str, context: int) -> HubWords:
    """Return the vocabulary of ``text.tower``, before anything is trained.

    Raises:
        UsvitError: A library is missing, the hub cannot be reached, or files are missing or not readable.
    """
    folder = _folder(tower)
    for name in ("config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise UsvitError(f"text.tower={tower} has no {name}, so that it is no text tower that usvit can read.")
    try:
        words = HubWords(*(read_text(folder / name) for name in ("config.json", "tokenizer.json")))
        with torch.device("meta"):
            words.encoder(context)
    except (ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
        raise UsvitError(f"text.tower={tower} cannot be used: {' '.join(str(error).split())[:200]}.") from error
    return words


def hub_weights(tower: str) -> dict[str, Tensor]:
    """Return the weights of ``HubWords.encoder``, from safetensors alone.

    Raises:
        UsvitError: As ``hub_words``, or there are no safetensors.
    """
    from transformers import AutoModel

    try:
        network = AutoModel.from_pretrained(
            _folder(tower), local_files_only=True, trust_remote_code=False, use_safetensors=True, dtype=torch.float32
        )
    except (OSError, ValueError) as error:
        raise UsvitError(
            f"text.tower={tower} has no readable weights in safetensors: {' '.join(str(error).split())[:200]}"
        ) from error
    return dict(encoder_of(network).state_dict())


def _need_library(what: str) -> None:
    """Raise UsvitError if transformers is not installed."""
    if find_spec("transformers") is None:
        raise UsvitError(f"{what} needs transformers, which is not installed: pip install 'usvit[text]'.")


def _folder(tower: str) -> Path:
    _need_library(f"text.tower={tower}")
    named = tower.removeprefix("hf:")
    if Path(named).is_dir():
        return Path(named)
    repository, _, revision = named.partition("@")
    return hub_folder(repository, _PATTERNS, revision or None, f"text.tower={tower}")
