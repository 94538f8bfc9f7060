"""The images of a run of ``usvit pretrain``, as a transfer names them: what it learnt from, and what it kept back."""

from pathlib import Path
from typing import Any

from usvit.errors import UsvitError
from usvit.run_dir import read_record

_SOURCE = ("name", "path", "split", "val", "val_share", "limit", "coarse", "size", "classes", "image_size")


def own_images(choice: str) -> dict[str, Any]:
    """Settings of a retrieval in a run's own images: its training images are searched with its validation images.

    Args:
        choice: ``--weights``: the run, or the folder of a fold.

    Returns:
        A layer of settings for ``TransferConfig``; the user's own lie above it.

    Raises:
        UsvitError: it is no run of usvit pretrain, or it had no labelled validation images.
    """
    path = Path(choice)
    run = path.absolute().parent if (path / "model.json").is_file() else path
    advice = "Name images with --source and --data-root."
    if not (run / "run.json").is_file():
        raise UsvitError(f"--weights {choice} is no run, so it says nothing of images to retrieve among. {advice}")
    record = read_record(run)
    if record.get("kind") != "pretrain":
        raise UsvitError(f"{run} is no run of usvit pretrain: which images should be searched? {advice}")
    try:
        config = record["config"]
        source = {key: config["source"][key] for key in _SOURCE}
        found = {"source": source, "seed": config["seed"], "sigma": config["grafit"]["sigma"], "test": None}
        found["views"] = {"test_crop": config["views"]["test_crop"]}
    except (KeyError, TypeError) as error:
        raise UsvitError(f"{run / 'run.json'} is damaged: it lacks {error}. Copy the run again.") from error
    if not (source["val"] or source["val_share"]):
        raise UsvitError(f"{run} had no validation images (source.val, source.val_share) to search with. {advice}")
    return found
