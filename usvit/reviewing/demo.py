"""A study of the embedded phantom, to try ``usvit review``."""

from pathlib import Path

from usvit.files import OutputFolder, write_text
from usvit.progress import Progress, shown_progress

_CASES = 12
_STUDY = f"""\
# A reader study of the embedded phantom: each case is read without and then with the model.
title: Demonstration with the phantom
instructions: |
  These images are simulated. Please say for each case how likely it is that the lesion is malignant,
  first without the model and then with it. The first two cases are for practice.
protocol: reader_study
design: sequential
readers: [A, B, C]
training: 2
source:
  run: run
  cases: {_CASES}
out: answers
"""


def write_demo(folder: str | Path, *, progress: Progress | None = None) -> Path:
    """Train a small model on the embedded phantom, which takes about a minute, and write a study of its test images.

    Args:
        folder: the folder to write; a demonstration that is there is used as it is.
        progress: shown while the model is trained.

    Returns:
        The file of the study.

    Raises:
        UsvitError: the folder holds other files.
    """
    from usvit.experiments import cross_validate

    folder = Path(folder)
    output = OutputFolder(folder, "a demonstration of usvit review", "study.yaml", files=("run", "answers"))
    if not output.has_record():
        run = folder / "run"
        overrides = {"split.folds": 3}
        cross_validate("phantom", recipe="usvit_small", out=run, overrides=overrides, progress=shown_progress(progress))
        with output.opened():
            write_text(folder / "study.yaml", _STUDY)
    return folder / "study.yaml"
