"""Which files of a folder are a model or its companion in ``usvit score``, and whether they are those of a list."""

import re
from pathlib import Path

from usvit.errors import UsvitError
from usvit.files import TABLE_BYTES, regular_file, sha256_of_file
from usvit.models import ATTENTION_FILE, CAPTIONS_FILE, MAX_BYTES, NOVELTY_FILE, SEGMENTER_FILE, TEXT_FILE, fold_folders
from usvit.records import ModelFilesRecord, ModelMetadata, load_record

FILE = "model-files.json"
PREDICTIONS = "predictions.csv"
_HEADS = (SEGMENTER_FILE, TEXT_FILE, CAPTIONS_FILE, NOVELTY_FILE, ATTENTION_FILE)
_OF_NETWORK = ("model.json", "model.safetensors", *_HEADS, PREDICTIONS)
_NAME = re.compile(
    r"(run\.json|metrics\.json|(fold-\d{1,4}/)?"
    rf"({'|'.join(map(re.escape, _OF_NETWORK))}|seen-[0-9a-f]{{16}}\.copies))"
)


def network_folders(model: Path) -> list[Path]:
    """Return the folders of the networks of a model.

    Raises:
        UsvitError: The folder holds no networks, refers to networks or weights elsewhere, or is no classifier.
    """
    folders = fold_folders(model)
    for folder in folders:
        if load_record(folder / "model.json", ModelMetadata).adapter is not None:
            raise UsvitError(
                f"{folder} holds adapters of LoRA, which need weights that are elsewhere. Make a whole network of it "
                f"first: usvit models export {folder} --format safetensors --out DIR, and take DIR."
            )
    return folders


def model_files(model: Path, *, predictions: bool = True) -> list[str]:
    """Return the paths of a model's files in its folder, sorted; errors are those of ``network_folders``."""
    network_folders(model)
    names = [path.relative_to(model).as_posix() for path in (*model.glob("*"), *model.glob("fold-*/*"))]
    return sorted(name for name in names if _NAME.fullmatch(name) and (predictions or not name.endswith(PREDICTIONS)))


def hashes(model: Path, names: list[str]) -> dict[str, str]:
    """Return name -> SHA-256 of these files.

    Raises:
        UsvitError: A file is a link or not a regular file, or larger than such a file may be.
    """
    for name in names:
        regular_file(model / name).close()
    return {name: sha256_of_file(model / name, most_bytes(name)) for name in names}


def most_bytes(name: str) -> int:
    """Return the largest size of a file of a model, in bytes."""
    return MAX_BYTES if name.endswith(".safetensors") else TABLE_BYTES


def load_list(file: Path) -> ModelFilesRecord:
    """Read the list of a model's files.

    Raises:
        UsvitError: It is missing or damaged, or names a file that does not belong to a model.
    """
    record = load_record(file, ModelFilesRecord)
    if odd := next((name for name in record.files if not _NAME.fullmatch(name)), None):
        raise UsvitError(f"{file} names {odd[:80]!r}, which is no file of a model. Nothing was read; do not use it.")
    return record


def refuse_other_files(model: Path, record: ModelFilesRecord) -> None:
    """Refuse a folder whose model has other files than the list.

    Raises:
        UsvitError: A file is missing, was added, or has another SHA-256.
    """
    there = model_files(model)
    if differing := sorted(set(there) ^ set(record.files)):
        what = "was added to" if differing[0] in there else "is missing from"
        raise UsvitError(f"{differing[0]} {what} the model {model}: {FILE} lists its files. Copy the model again.")
    found = hashes(model, there)
    if changed := next((name for name in there if found[name] != record.files[name]), None):
        raise UsvitError(
            f"{model / changed} is not the file whose SHA-256 is in {FILE}: it was changed or damaged. Copy the model "
            "again."
        )
