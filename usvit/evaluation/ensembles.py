"""The networks of an ensemble of runs: where they are, and whether they are still those that it was made from."""

from pathlib import Path

from usvit.errors import UsvitError
from usvit.files import sha256_of_file
from usvit.records import EnsembleRecord, MemberNetwork, MemberRun, RunRecord, load_record, refuse_changed_run

RECORD = "ensemble.json"


def is_ensemble(folder: Path) -> bool:
    """Return whether a folder is an ensemble that ``usvit ensemble`` wrote."""
    return (folder / "run.json").is_file() and load_record(folder / "run.json", RunRecord).kind == "ensemble"


def load_ensemble(folder: Path) -> EnsembleRecord:
    """Read ``ensemble.json``, after a check that the files of the ensemble are those that were written.

    Raises:
        UsvitError: A file is missing, damaged or changed.
    """
    refuse_changed_run(folder, load_record(folder / "run.json", RunRecord))
    return load_record(folder / RECORD, EnsembleRecord, "Make the ensemble again with usvit ensemble.")


def network_folder(folder: Path, member: MemberRun, network: MemberNetwork) -> Path:
    """Return the folder of one network of a member run, after a check of its files.

    Args:
        folder: Folder of the ensemble.
        member: The member run.
        network: One of its networks.

    Raises:
        UsvitError: The run is not there, lacks the network, or has another one by now.
    """
    run = folder / member.path
    own = run / f"fold-{network.fold}"
    again = "Restore it, or make the ensemble again with usvit ensemble."
    if not (run / "run.json").is_file():
        raise UsvitError(
            f"The ensemble {folder} needs its member {member.name}, which is not at {run}: an ensemble refers to its "
            f"runs and holds no networks. {again}"
        )
    for name, recorded in (("model.json", network.model_sha256), ("model.safetensors", network.weights_sha256)):
        if not (own / name).is_file():
            raise UsvitError(f"The ensemble {folder} needs {own / name}, which is missing. {again}")
        if sha256_of_file(own / name) != recorded:
            raise UsvitError(
                f"{own / name} was changed since the ensemble {folder} was made: its SHA-256 is not the one in "
                f"{RECORD}. {again}"
            )
    return own
