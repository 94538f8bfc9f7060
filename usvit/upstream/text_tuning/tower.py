"""The text tower, the map of the locked features, and their file ``text.safetensors``; what a decoder shares."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn import functional as F

from usvit.errors import UsvitError
from usvit.experiments import tensor_bytes
from usvit.files import write_bytes
from usvit.models import TEXT_FILE, read_state_dict
from usvit.upstream.config.text import TextConfig
from usvit.upstream.text_tuning.byte_pairs import END, PAD, BytePairs
from usvit.upstream.text_tuning.hub_words import HubWords
from usvit.upstream.text_tuning.losses import FIRST_BIAS, FIRST_SCALE, LOSSES, MAX_SCALE

_LEAST_SPREAD = 1e-5
_Concepts = TypeAdapter(dict[str, list[str]])
_Module = TypeVar("_Module", bound="TextModule")


class TextModule(nn.Module):
    """What reads or writes texts beside features: embedded byte pairs, and standardised features.

    Args:
        config: Width, depth, heads, context, loss, and whether the features are mapped.
        words: The vocabulary.
        n_features: Number of features D of the locked network.
    """

    file: ClassVar[str]
    """Name of its file."""
    mean: Tensor
    std: Tensor

    def __init__(self, config: TextConfig, words: BytePairs | HubWords, n_features: int):
        super().__init__()
        self.config, self.words = config, words
        self.concepts: dict[str, list[str]] = {}
        """The concepts that were tested, and their values."""
        if isinstance(words, BytePairs):
            self.embed = nn.Embedding(len(words), config.width)
            self.positions = nn.Parameter(torch.randn(config.context, config.width) * 0.01)
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("std", torch.ones(n_features))

    def standardise_by(self, features: NDArray[np.floating]) -> None:
        """Take mean and spread of the training images' features, (n, D)."""
        self.mean.copy_(torch.from_numpy(features.mean(axis=0)))
        self.std.copy_(torch.from_numpy(features.std(axis=0) + _LEAST_SPREAD))

    def standardised(self, features: Tensor) -> Tensor:
        """Return standardised features (n, D)."""
        return (features - self.mean) / self.std

    def write(self, folder: Path) -> None:
        """Write its file: all tensors, and in the header the vocabulary, the settings and the concepts."""
        header = self.words.header() | {"text": self.config.model_dump_json(), "concepts": json.dumps(self.concepts)}
        write_bytes(folder / self.file, tensor_bytes(self.state_dict(), header))


class TextTower(TextModule):
    """A text transformer, a small one or one of the hub, and the map of locked image features into its space.

    Arguments are those of ``TextModule``.
    """

    file = TEXT_FILE

    def __init__(self, config: TextConfig, words: BytePairs | HubWords, n_features: int):
        super().__init__(config, words, n_features)
        width = config.width
        if isinstance(words, HubWords):
            self.encoder = encoder = words.encoder(config.context)
            width = encoder.width
        else:
            layer = nn.TransformerEncoderLayer(
                width, config.heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            self.blocks = nn.TransformerEncoder(layer, config.depth, nn.LayerNorm(width), enable_nested_tensor=False)
        out = width if config.projection else n_features
        self.text_map = nn.Linear(width, out, bias=False)
        self.image_map = nn.Linear(n_features, out, bias=False) if config.projection else nn.Identity()
        self.log_scale = nn.Parameter(torch.tensor(FIRST_SCALE[config.loss]).log())
        self.bias = nn.Parameter(torch.tensor(FIRST_BIAS[config.loss]), requires_grad=config.loss == "sigmoid")
        if isinstance(words, BytePairs):
            nn.init.normal_(self.embed.weight, std=0.02)

    @property
    def scale(self) -> Tensor:
        """Scale of the cosine, () float in (0, ``MAX_SCALE``]."""
        return self.log_scale.exp().clamp(max=MAX_SCALE)

    def images(self, features: Tensor) -> Tensor:
        """Return unit vectors (n, E) of features (n, D)."""
        mapped: Tensor = self.image_map(self.standardised(features))
        return F.normalize(mapped, dim=-1)

    def texts(self, numbers: Tensor) -> Tensor:
        """Return unit vectors (n, E) of texts (n, context), as ``encoded`` of the vocabulary gives them."""
        if isinstance(self.words, HubWords):
            return F.normalize(self.text_map(self.encoder(numbers)), dim=-1)
        numbers = numbers[:, : int((numbers != PAD).sum(1).max())]  # the rest is filling in every text
        hidden = self.embed(numbers) + self.positions[: numbers.shape[1]]
        hidden = self.blocks(hidden, src_key_padding_mask=numbers == PAD)
        ends = hidden[torch.arange(len(numbers)), (numbers == END).int().argmax(1)]
        return F.normalize(self.text_map(ends), dim=-1)

    def forward(self, features: Tensor, numbers: Tensor) -> Tensor:
        """Return the (n, m) scaled cosines, plus the bias, of n images and m texts."""
        return self.scale * self.images(features) @ self.texts(numbers).T + self.bias

    @torch.inference_mode()
    def embedded(self, texts: Sequence[str], batch: int = 512) -> NDArray[np.float32]:
        """Return unit vectors (n, E) of texts."""
        numbers = torch.from_numpy(self.words.encoded(texts, self.config.context)[0])
        return np.concatenate([self.texts(part).numpy() for part in numbers.split(batch)])

    def loss(self, features: Tensor, numbers: Tensor) -> Tensor:
        """Return the loss of n pairs, () in nats."""
        return LOSSES[self.config.loss](self(features, numbers))


def load_text_tower(folder: Path) -> TextTower:
    """Load the text tower of a fold of ``usvit transfer --how text``, on the CPU in evaluation mode.

    Raises:
        UsvitError: There is none, or the file is damaged.
    """
    return load_text_module(folder, TextTower)


def load_text_module(folder: Path, kind: type[_Module]) -> _Module:
    """Load a text tower or a decoder; errors as ``load_text_tower``."""
    path = folder / kind.file
    if not path.is_file():
        raise UsvitError(f"{folder} has no {kind.file}: it is not a fold of usvit transfer --how text that wrote one.")
    tensors = read_state_dict(path)
    try:
        with safe_open(path, framework="pt") as opened:
            header = opened.metadata() or {}
        hub = "tokenizer" in header
        words = HubWords(header["encoder"], header["tokenizer"]) if hub else BytePairs(json.loads(header["merges"]))
        module = kind(TextConfig.model_validate_json(header["text"]), words, len(tensors["mean"]))
        module.load_state_dict(tensors)
        module.concepts = _Concepts.validate_json(header.get("concepts", "{}"))
    except (KeyError, TypeError, ValueError, ValidationError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsvitError(f"{path} is damaged: {reason}. Copy it again.") from error
    return module.eval().requires_grad_(False)
