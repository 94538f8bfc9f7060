"""The training and validation images of a run of ``usvit pretrain``, as settings of a transfer."""

from pathlib import Path

from usvit.errors import UsvitError
from usvit.plain_data import Settings
from usvit.records import load_run_record

_SOURCE = (
    "name",
    "path",
    "split",
    "val",
    "val_source",
    "val_share",
    "limit",
    "coarse",
    "size",
    "classes",
    "image_size",
)


def own_images(choice: str) -> Settings:
    """Return the settings of a retrieval that searches a run's training images with its validation images.

    Args:
        choice: The value of ``--weights``: a run, or the folder of a fold.

    Returns:
        A layer of settings for ``TransferConfig``, below the settings of the user.

    Raises:
        UsvitError: The folder is not a run of ``usvit pretrain``, or the run had no labelled validation images.
    """
    path = Path(choice)
    run = path.absolute().parent if (path / "model.json").is_file() else path
    advice = "Name images with --source and --data-root."
    if not (run / "run.json").is_file():
        raise UsvitError(f"--weights {choice} is not a run, so it does not name the images to search. {advice}")
    record = load_run_record(run)
    if record.kind != "pretrain":
        raise UsvitError(f"{run} is not a run of usvit pretrain, so it does not name the images to search. {advice}")
    try:
        config = record.config.model_dump(exclude_unset=True)
        source = {key: config["source"][key] for key in _SOURCE}
        found = {"source": source, "seed": config["seed"], "sigma": config["grafit"]["sigma"], "test": None}
        found["views"] = {"test_crop": config["views"]["test_crop"]}
    except (KeyError, TypeError) as error:
        raise UsvitError(f"{run / 'run.json'} is damaged: it lacks {error}. Copy the run again.") from error
    if not (source["val"] or source["val_share"]):
        raise UsvitError(f"{run} had no validation images (source.val, source.val_share) to search with. {advice}")
    return found
