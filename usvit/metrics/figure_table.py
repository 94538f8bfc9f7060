"""The figures of a classifier in one table, from which records, pages, the terminal and studies derive their lists."""

from dataclasses import dataclass


@dataclass(frozen=True)
class _FigureRow:
    """One figure: its key in metrics.json, its titles, and where it is shown."""

    key: str
    title: str
    """In the terminal and in tables of studies."""
    page: str | None = None
    """In the main table of the report; None leaves it out there."""
    sentence: str | None = None
    """In sentences below tables, if not as the title."""
    of_class: bool = False
    """Whether each class has one, taken against all others."""
    lower_is_better: bool = False

    @property
    def in_sentence(self) -> str:
        return self.sentence or self.title

    def titled(self, title: str, positive: str) -> str:
        """Return a title with the class: ``AUC, malignant vs rest``, ``sensitivity, malignant``, ``accuracy``."""
        if not self.of_class:
            return title
        return f"{title}, {positive} vs rest" if self.key == "auc" else f"{title}, {positive}"


FIGURES = (
    _FigureRow("accuracy", "accuracy", "Accuracy"),
    _FigureRow("balanced_accuracy", "balanced accuracy", "Balanced accuracy"),
    _FigureRow("auc", "AUC", "AUC", of_class=True),
    _FigureRow(
        "auc_macro_ovr", "AUC, macro one vs rest", "AUC, mean of all classes vs rest", "mean AUC of the classes"
    ),
    _FigureRow("auc_weighted_ovr", "AUC, weighted one vs rest"),
    _FigureRow("auc_hand_till", "AUC, Hand-Till"),
    _FigureRow("mcc", "MCC"),
    _FigureRow("f1_macro", "F1, macro"),
    _FigureRow("average_precision_macro", "average precision, macro"),
    _FigureRow("average_precision", "average precision", of_class=True),
    _FigureRow("sensitivity", "sensitivity", "Sensitivity", of_class=True),
    _FigureRow("specificity", "specificity", "Specificity", of_class=True),
    _FigureRow("ppv", "PPV", of_class=True),
    _FigureRow("npv", "NPV", of_class=True),
    _FigureRow("f1", "F1", of_class=True),
    _FigureRow("brier_vs_rest", "Brier score", of_class=True, lower_is_better=True),
    _FigureRow("brier", "Brier score", lower_is_better=True),
    _FigureRow("log_loss", "log loss", lower_is_better=True),
)
BY_KEY = {row.key: row for row in FIGURES}

HEADLINE = tuple(
    BY_KEY[key]
    for key in ("auc", "auc_macro_ovr", "accuracy", "balanced_accuracy", "sensitivity", "specificity", "brier")
)
"""The figures of the headline in their order; those of a class are of the positive class against the rest."""
AVERAGES = ("auc_macro_ovr", "balanced_accuracy")
"""Means over classes in the headline. With two classes, the mean of the AUCs is the AUC."""


def main_table(n_classes: int) -> list[_FigureRow]:
    """Return the rows of the main table of a report."""
    return [row for row in FIGURES if row.page and not (n_classes == 2 and row.key == "auc_macro_ovr")]
