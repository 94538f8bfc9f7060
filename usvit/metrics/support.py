"""Number of groups that a figure is estimated from.

A clustered interval is only as good as the number of independent groups behind it. With 400 patients of whom 12 are
malignant, an AUC rests on 12; with 60 patients of whom one has half of the images, a share rests on about 4.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

FEW_GROUPS = 50
"""Below this many effective groups a clustered interval covers less than it says (docs/explanation/intervals.md)."""
_ROUGHLY_EQUAL = 0.8
"""The warning mentions the effective number only if it is below this share of the groups."""


@dataclass(frozen=True)
class Support:
    """The groups that a figure is estimated from.

    Attributes:
        n_groups: groups with an image that the figure looks at.
        effective: Kish's effective number of groups, in [1, n_groups]; 0 without groups.
        of: description of the images, such as "images of class 'malignant'"; empty for all images.
    """

    n_groups: int
    effective: float
    of: str = ""

    @property
    def warning(self) -> str | None:
        """Reason why the interval is not reliable, as a sentence; None if there are enough groups."""
        if self.effective >= FEW_GROUPS:
            return None
        who = f" with {self.of}" if self.of else ""
        counted = f"{self.n_groups} group{'s' * (self.n_groups != 1)}{who}"
        if self.effective < _ROUGHLY_EQUAL * self.n_groups:
            counted += f", which count as {self.effective:.0f} because a few of them hold most of the images:"
        else:
            counted += " only:"
        return f"from {counted} below {FEW_GROUPS}, intervals cover the true value less often than 95 %"


def effective_groups(images_of_group: ArrayLike) -> float:
    """Compute Kish's effective number of groups, (sum m)^2 / sum m^2.

    This many groups of equal size give a mean over images the same variance if the images of one group are alike. It
    equals the number of groups if all groups have the same size.

    Args:
        images_of_group: (G,) images of each group, >= 0; groups without an image do not count.

    Source: Kish (1965), Survey Sampling, section 8.2 and 11.7; used for clusters of unequal size by Carter, Schnepel &
    Steigerwald (2017), Review of Economics and Statistics 99:698.
    """
    m = np.asarray(images_of_group, dtype=np.float64)
    squares = float((m**2).sum())
    return float(m.sum()) ** 2 / squares if squares else 0.0


def satterthwaite_freedom(contributions: np.ndarray, effective: float) -> float:
    """Compute the degrees of freedom of a variance that is estimated from groups, at least 1.

    They are at most one less than the effective number of groups, and fewer if a few groups determine the variance:
    2 G / (kurtosis - 1), with the kurtosis of the groups' contributions.

    Args:
        contributions: (G,) what each group adds to the figure, less their mean.
        effective: effective number of groups.

    Source: Satterthwaite (1946), Biometrics Bulletin 2:110, with the variance of a sample variance.
    """
    square = float((contributions**2).mean())
    excess = float((contributions**4).mean()) / square**2 - 1 if square > 0 else 0.0
    return max(1.0, min(effective - 1, 2 * len(contributions) / excess) if excess > 0 else effective - 1)


def steadied_design_effect(observed: float, largest: float, n_groups: float) -> float:
    """Return a design effect that counts one more group, whose images are all alike; never below the observed one.

    A few groups often show less variation than there is, because the rare group that differs is not among them. The
    interval of a share is then too short. One more group of the most extreme kind lengthens it by 4 to 15 % with 13
    groups and by nothing with hundreds (docs/explanation/intervals.md; this is our own correction).

    Args:
        observed: variance of the share over that of independent images.
        largest: design effect if all images of a group are alike: images over the effective number of groups.
        n_groups: number of groups, or their effective number.
    """
    return max(observed, (n_groups * observed + largest) / (n_groups + 1))


def support_of(code: np.ndarray, of: str = "") -> Support:
    """Return the support of images with the (n,) int groups ``code``."""
    counts = np.bincount(code) if len(code) else np.zeros(0, dtype=np.int64)
    return Support(int((counts > 0).sum()), effective_groups(counts), of)


def rarest(label: np.ndarray, code: np.ndarray, names: dict[int, str]) -> Support:
    """Return the support of the class with the fewest effective groups.

    Args:
        label: (n,) int.
        code: (n,) int, the group of each image.
        names: class index -> description of its images, for the classes to compare; each has an image.
    """
    return min((support_of(code[label == k], of) for k, of in names.items()), key=lambda one: one.effective)


def few_groups_sentences(label: np.ndarray, code: np.ndarray, classes: list[str]) -> list[str]:
    """Return warnings about few groups: overall, and for each class.

    Args:
        label: (n,) int in 0 ... K - 1.
        code: (n,) int, the group of each image.
        classes: K names; a class without an image is left out.
    """
    said = []
    if warning := support_of(code).warning:
        said.append(f"Intervals are {warning}.")
    few = []
    for k, name in enumerate(classes):
        own = support_of(code[label == k])
        if own.n_groups and own.warning:
            unequal = own.effective < _ROUGHLY_EQUAL * own.n_groups
            few.append(f"{name} {own.n_groups}" + (f" (which count as {own.effective:.0f})" if unequal else ""))
    if few:
        said.append(
            f"Groups with an image of the class: {', '.join(few)}. Figures of a class, and every AUC, rest on the "
            f"groups of the rarer class. Below {FEW_GROUPS} groups, intervals cover the truth less often than 95 %."
        )
    return said
