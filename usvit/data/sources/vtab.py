"""VTAB-1k: 800 + 200 training images of each of 19 tasks, by the lists that are widely passed around.

Source: Zhai et al. 2019, "A large-scale study of representation learning with the Visual Task Adaptation Benchmark".
The lists (``train800.txt``, ``val200.txt``, ``train800val200.txt``, ``test.txt``; a line is a path and a class number)
come with the images as files, a folder for each task; the benchmark itself reads TensorFlow Datasets.
"""

from pathlib import Path
from typing import Any

from usvit.data.sources.base import ListedSource
from usvit.data.sources.catalog import VTAB_TASKS
from usvit.data.sources.folder import FileSource
from usvit.data.sources.named_set import Malformed, NamedSet, inside, lines

SPLITS = ("train800", "val200", "train800val200", "test")


def _read(task: str) -> Any:
    return lambda root, split: read_vtab(task, root, split)


def read_vtab(task: str, root: Path, split: str) -> ListedSource:
    """One list; classes are numbers.

    Raises:
        Malformed: a line is no path and class number of the task.
    """
    folder, files, targets = _folder(task, root), [], []
    for line in lines(folder / f"{split}.txt"):
        name, _, number = line.rpartition(" ")
        if not number.isdecimal() or not name or int(number) >= VTAB_TASKS[task]:
            raise Malformed(
                f"a line of {split}.txt is no path and class from 0 to {VTAB_TASKS[task] - 1}: {line[:100]}"
            )
        files.append(inside(name.strip()))
        targets.append(int(number))
    return FileSource(f"vtab_{task}", folder, files, map(str, range(VTAB_TASKS[task])), targets)


def _folder(task: str, root: Path) -> Path:
    return root / task if (root / task).is_dir() else root


def _set(task: str) -> NamedSet:
    return NamedSet(
        name=f"vtab_{task}",
        layout=f"{task}/train800.txt, val200.txt, train800val200.txt, test.txt (lines: path class)\n"
        f"{task}/images/... (what the lists name)",
        get="VTAB-1k as images and lists (vtab-1k).",
        splits=SPLITS,
        looks_like=lambda root: (root.name == task and _has_lists(root)) or _has_lists(root / task),
        read=_read(task),
    )


def _has_lists(folder: Path) -> bool:
    return any((folder / f"{split}.txt").is_file() for split in SPLITS)


SETS = tuple(map(_set, VTAB_TASKS))
