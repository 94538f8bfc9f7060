"""The figures of a classifier in one table, from which records, pages, the terminal and studies derive their lists.

``usvit.metrics`` computes them. It lies above the records, whose fields follow from this table, so a row names its
function.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class _FigureRow:
    """One figure: its key in metrics.json, its titles, where it is shown, and the function of a further figure."""

    key: str
    title: str
    """In the terminal and in tables of studies."""
    page: str | None = None
    """In the main table of the report, the remarks below it, the results by patient, and the comparison; None leaves it
    out there."""
    sentence: str | None = None
    """In sentences below tables, if not as the title."""
    headline: int = 0
    """Place in the headline, as the mean over folds; 0: not there. The figure must lie in [0, 1]."""
    of_class: bool = False
    """Whether each class has one, taken against all others. The headline has that of the positive class."""
    over_classes: bool = False
    """Whether it is a mean over the classes."""
    lower_is_better: bool = False
    chooses: bool = True
    """Whether the best model can be chosen by it; not by the sensitivity, which is 1 if every image is positive."""
    function: str = ""
    """``module:name`` of the function that computes a figure (``usvit.metrics.figures.FigureFunction``). The figures
    without one are those that ``usvit.metrics.figures.Figures`` and the AUCs compute together."""
    meaning: str = ""
    """Text of the key in the JSON Schema, for a figure with a function."""

    def __post_init__(self) -> None:
        if self.page and not self.headline:
            raise ValueError(f"{self.key} is in the main table, which quotes the headline: give its place there")

    @property
    def in_sentence(self) -> str:
        return self.sentence or self.title

    def titled(self, title: str, positive: str) -> str:
        """Return a title with the class: ``AUC, malignant vs rest``, ``sensitivity, malignant``, ``accuracy``."""
        if not self.of_class:
            return title
        return f"{title}, {positive} vs rest" if self.key == "auc" else f"{title}, {positive}"


FIGURES = (
    _FigureRow("accuracy", "accuracy", "Accuracy", headline=3),
    _FigureRow("balanced_accuracy", "balanced accuracy", "Balanced accuracy", headline=4, over_classes=True),
    _FigureRow("auc", "AUC", "AUC", headline=1, of_class=True),
    _FigureRow(
        "auc_macro_ovr",
        "AUC, macro one vs rest",
        "AUC, mean of all classes vs rest",
        "mean AUC of the classes",
        headline=2,
        over_classes=True,
    ),
    _FigureRow("auc_weighted_ovr", "AUC, weighted one vs rest", over_classes=True),
    _FigureRow("auc_hand_till", "AUC, Hand-Till", over_classes=True),
    _FigureRow("mcc", "MCC"),
    _FigureRow("f1_macro", "F1, macro", over_classes=True),
    _FigureRow("average_precision_macro", "average precision, macro", over_classes=True),
    _FigureRow("average_precision", "average precision", of_class=True),
    _FigureRow("sensitivity", "sensitivity", "Sensitivity", headline=5, of_class=True, chooses=False),
    _FigureRow("specificity", "specificity", "Specificity", headline=6, of_class=True, chooses=False),
    _FigureRow("ppv", "PPV", of_class=True),
    _FigureRow("npv", "NPV", of_class=True),
    _FigureRow("f1", "F1", of_class=True),
    _FigureRow("brier_vs_rest", "Brier score", of_class=True, lower_is_better=True),
    _FigureRow("brier", "Brier score", headline=7, lower_is_better=True),
    _FigureRow("log_loss", "log loss", lower_is_better=True),
)
BY_KEY = {row.key: row for row in FIGURES}

HEADLINE = tuple(sorted((row for row in FIGURES if row.headline), key=lambda row: row.headline))
"""The figures of the headline in their order; those of a class are of the positive class against the rest."""
COMPARED = tuple(row for row in HEADLINE if row.page)
"""Those of the headline that a comparison shows of each run."""
BY_PATIENT = tuple(row for row in COMPARED if not row.over_classes)
"""Those that the results by patient and the remarks on subgroups show."""


def main_table(n_classes: int) -> list[_FigureRow]:
    """Return the rows of the main table of a report. With two classes, the mean of the AUCs is the AUC."""
    return [row for row in FIGURES if row.page and not (n_classes == 2 and row.key == "auc_macro_ovr")]
