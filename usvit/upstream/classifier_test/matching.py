"""Which outputs of a classifier compete, and which of them are right for an image.

Source of the rules: the public code of ImageNet-A and -R (logits are restricted to the 200 classes before the
decision); Beyer et al. 2020 (ReaL: any of an image's labels is right); Barbu et al. 2019 (ObjectNet: the decision among
all 1,000 classes is right if it maps to the image's class).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from usvit.data.datasets import UpstreamDataset
from usvit.errors import UsvitError
from usvit.upstream.config.test import TestConfig

Ints = NDArray[np.int64]

_OPEN_LISTS = ("folder", "shards", "data")
"""Sources whose list of classes is what happens to be there: a missing class is one without images."""


Rule = Literal["all", "subset", "mapped"]


@dataclass(frozen=True)
class Matching:
    """The competing outputs of one classifier for one test set, and the right ones."""

    rule: Rule
    """``all``, ``subset`` or ``mapped`` (``TestResult.rule``)."""
    kept: Ints | None
    """Competing outputs in ascending order, of shape (M,); None for all."""
    right: tuple[tuple[int, ...], ...]
    """For each class of the source, its right outputs, as positions among the competing ones."""

    def right_of(self, labels: Iterable[int]) -> list[int]:
        """Return the right outputs of an image with these classes."""
        return sorted({output for label in labels for output in self.right[label]})


def match(name: str, classes: tuple[str, ...], source: UpstreamDataset, label: str, config: TestConfig) -> Matching:
    """Match the outputs of a classifier with the classes of a source, by name.

    Args:
        name: The classifier, for error messages.
        classes: Names of its outputs.
        source: The labelled images.
        label: Name of the test set, for error messages.
        config: ``outputs`` decides whether outputs without images compete.

    Raises:
        UsvitError: The images have classes that the classifier does not have, or no labels.
    """
    if not source.classes or (source.targets < 0).any():
        raise UsvitError(f"A test needs labelled images, and {label} has none. Choose a labelled source.")
    number = {one: at for at, one in enumerate(classes)}
    answers = {one: (one,) for one in source.classes} if source.answers is None else source.answers
    unknown = [one for one in source.classes if not all(answer in number for answer in answers[one])]
    if unknown:
        raise UsvitError(
            f"{label} has {len(unknown)} of {len(source.classes)} classes that the classifier {name} does not have "
            f"({_some(unknown)}); its {len(classes)} classes are {_some(classes)}. Rename the class folders to the "
            "classifier's classes, remove those that it does not have, or choose another classifier."
        )
    right = [sorted({number[answer] for answer in answers[one]}) for one in source.classes]
    rule: Rule = "all"
    kept = None
    if source.answers is not None:
        rule = "mapped"
    elif set(source.classes) != set(classes) and _restricts(config, label):
        rule, kept = "subset", np.array(sorted(output for one in right for output in one), dtype=np.int64)
        position = {int(output): at for at, output in enumerate(kept)}
        right = [[position[output] for output in one] for one in right]
    if (len(classes) if kept is None else len(kept)) < 2:
        raise UsvitError(
            f"{label} has a single class, so restricting the outputs to it makes every decision right. "
            "Set outputs=all, or add the images of other classes."
        )
    return Matching(rule, kept, tuple(map(tuple, right)))


def _restricts(config: TestConfig, label: str) -> bool:
    if config.outputs == "auto":
        return label.partition(":")[0] not in _OPEN_LISTS
    return config.outputs == "subset"


def _some(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
