"""Where a network's first weights come from: the hub, a file, or nowhere.

Resolving comes first and is cheap, so that a run that cannot have its weights stops before any
work. Files are read without unpickling code: safetensors, or PyTorch files as ``weights_only``.
"""

import http.client
import pickle
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from usvit.data.seen import passport_beside
from usvit.errors import UsvitError
from usvit.files import sha256_of_file
from usvit.models.zoo import ModelSpec

FILE_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
_HUB_FILES = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class Weights:
    """A network's first weights, found and hashed."""

    source: str
    """``hub``, ``file`` or ``scratch``."""
    path: Path | None = None
    name: str | None = None
    """The hub's repository, or the file's name; never a whole path."""
    sha256: str | None = None
    license: str | None = None
    passport: dict[str, Any] | None = field(default=None, repr=False)
    """Of weights that usvit trained (``model.json`` beside the file): among others, which images they have seen."""

    def describe(self) -> dict[str, Any]:
        """For ``run.json`` and ``model.json``: without the path, which belongs to one machine, and the passport."""
        return {key: value for key, value in asdict(self).items() if key not in ("path", "passport")}


def resolve_weights(choice: str, spec: ModelSpec) -> Weights:
    """Find the weights that ``--weights`` names; download them only for ``hub``, and only if not cached.

    Args:
        choice: ``hub``, ``scratch``, or the path of a file with one of ``FILE_SUFFIXES``.
        spec: the network they are for.

    Raises:
        UsvitError: they are neither cached nor reachable, or there is no such file.
    """
    if choice == "scratch":
        return Weights("scratch")
    if choice == "hub":
        return _from_hub(spec)
    path = Path(choice)
    if not path.is_file():
        raise UsvitError(f"--weights {choice}: there is no such file. Give hub, scratch, or a file ({_suffixes()}).")
    if path.suffix not in FILE_SUFFIXES:
        raise UsvitError(f"--weights {choice}: files of this kind are not read; known: {_suffixes()}.")
    return Weights("file", path, path.name, sha256_of_file(path), passport=passport_beside(path))


def read_state_dict(path: Path) -> dict[str, Any]:
    """Parameter name -> tensor, from a file that is not trusted.

    Nested checkpoints (``{"model": ...}``, ``{"state_dict": ...}``) are unwrapped by timm.

    Raises:
        UsvitError: the file is damaged, or holds Python objects instead of tensors.
    """
    import timm.models
    import torch
    from safetensors import SafetensorError

    try:
        state = timm.models.load_state_dict(str(path), weights_only=True)
    except (AttributeError, TypeError):  # timm met no dictionary
        state = {}
    except (pickle.UnpicklingError, SafetensorError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        if "weights_only" in str(error) and _is_pickle(path):
            raise UsvitError(
                f"The weights {path} hold Python objects, which can run code when loaded, so they are refused. "
                "Ask for them as .safetensors, or save model.state_dict() alone."
            ) from error
        reason = f" ({error})" if isinstance(error, SafetensorError) else ""
        raise UsvitError(f"The weights {path} are damaged or no weights file{reason}. Copy the file again.") from error
    if not state or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise UsvitError(f"The weights {path} hold no table of tensors. Save model.state_dict() alone.")
    return state


def _is_pickle(path: Path) -> bool:
    """Whether a file begins as PyTorch's do (an archive, or a bare pickle); a web page or a text does not."""
    with open(path, "rb") as file:
        return file.read(2).startswith((b"PK", b"\x80"))


def _from_hub(spec: ModelSpec) -> Weights:
    import timm

    config = timm.get_pretrained_cfg(spec.timm_name)
    repository = config.hf_hub_id if config else None
    if not config or not repository:
        raise UsvitError(f"There are no hub weights for the model {spec.name}. {_without_hub()}")
    path = _cached(repository) or _downloaded(repository, spec)
    return Weights("hub", path, repository, sha256_of_file(path), config.license)


def _cached(repository: str) -> Path | None:
    """The weights in the Hugging Face cache; the network is not touched."""
    from huggingface_hub import try_to_load_from_cache

    for file in _HUB_FILES:
        path = try_to_load_from_cache(repository, file)
        if isinstance(path, str):
            return Path(path)
    return None


def _downloaded(repository: str, spec: ModelSpec) -> Path:
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "there is no connection to the hub"
    if not constants.HF_HUB_OFFLINE and _hub_answers():
        reason = f"the hub has none of {', '.join(_HUB_FILES)} there"
        for file in _HUB_FILES:
            try:
                return Path(hf_hub_download(repository, file))
            except EntryNotFoundError:
                continue  # not in this format: try the next
            except Exception as error:  # whatever the HTTP library of the day raises
                reason = " ".join(str(error).split())[:200]
                break
    raise UsvitError(
        f"The pre-trained weights of {spec.name} ({repository}) are neither in the Hugging Face cache nor reachable: "
        f"{reason}. {_without_hub()}"
    )


def _hub_answers() -> bool:
    """Whether anything answers at the hub's address, through the user's proxy if there is one.

    Asked first because the hub's own client tries again for a minute before it gives up.
    """
    from huggingface_hub import constants

    try:
        with urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=10):
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, http.client.HTTPException, ValueError):  # ValueError: HF_ENDPOINT is no address
        return False


def _without_hub() -> str:
    return (
        "Pass --weights scratch to start from random weights, or --weights FILE with a copy of the file "
        f"({_suffixes()})."
    )


def _suffixes() -> str:
    return ", ".join(FILE_SUFFIXES)
