"""``usvit models push``: a model to the Hugging Face hub, a folder, or an address of fsspec."""

import json
from dataclasses import dataclass
from pathlib import Path

from usvit.arguments import checked_arguments
from usvit.errors import UsvitError
from usvit.publishing import addresses
from usvit.publishing.card import CARD, published_card
from usvit.publishing.model_files import FILE, PREDICTIONS, hashes, load_list, model_files
from usvit.publishing.signature import refuse_other_signature
from usvit.records import ModelFilesRecord


@dataclass(frozen=True)
class Pushed:
    """What was pushed."""

    address: str
    files: tuple[str, ...]
    """Paths at the address, in the order in which they were written."""
    signed: bool
    """Whether the model is signed."""


@checked_arguments
def push_model(model: str | Path, to: str, *, predictions: bool = False, public: bool = False) -> Pushed:
    """Copy a model to the Hugging Face hub, a folder or an address of fsspec, with a model card of the hub.

    Only files of the model are taken: networks with their metadata, ``run.json`` and ``metrics.json``. The card states
    network, training images with their data cards, licences, intended use, and the figures with their intervals.

    Args:
        model: Folder of a run, of a fold, or of an export as safetensors.
        to: ``hf://OWNER/NAME``, a folder, or an address of fsspec, such as ``s3://BUCKET/FOLDER``; it must hold no
            files yet.
        predictions: Whether ``predictions.csv`` go along, which have a row for each image. From them, thresholds of a
            run of several folds are chosen.
        public: Whether everybody may read a new repository of the hub.

    Returns:
        Address and names of the files, and whether the model is signed.

    Raises:
        UsvitError: The folder is no model, its signature does not fit, or the place has files or cannot be written.

    Example:
        >>> import usvit
        >>> pushed = usvit.push_model("exported", "shared/model")
        >>> pushed.files[-1]
        'model-files.json'
    """
    model = Path(model)
    names = model_files(model, predictions=predictions)
    record = _signed(model, names) or ModelFilesRecord(files=hashes(model, names))
    content = (json.dumps(record.content(), indent=2) + "\n").encode()
    card = published_card(model).encode()
    addresses.put(
        to, {**{name: model / name for name in record.files}, CARD: card, FILE: content}, public=public
    )  # the list comes last: without it, there is no model to pull
    return Pushed(addresses.shown(to), (*record.files, CARD, FILE), record.signature is not None)


def _signed(model: Path, names: list[str]) -> ModelFilesRecord | None:
    """Return the list of a signed model; None if it is not signed."""
    record = load_list(model / FILE) if (model / FILE).exists() else None
    if record is None or record.signature is None:
        return None
    refuse_other_signature(model, record)
    if set(names) != set(record.files):
        raise UsvitError(
            f"The signature of {model} covers {PREDICTIONS}, too. Pass --predictions to push it as well, or sign and "
            "push an export (usvit models export), which has none."
        )
    return record
