"""The shipped studies: which table of which paper each one makes, and how long it takes."""

from dataclasses import dataclass, replace

from usvit.arguments import checked_arguments
from usvit.errors import UsvitError, unknown
from usvit.upstream.studies.specification import StudyConfig, load_study, study_names


@dataclass(frozen=True)
class ListedStudy:
    """A shipped study."""

    name: str
    """The name for ``usvit study``."""
    paper: str
    """Short name of the paper."""
    table: str
    """Table or figure of the paper."""
    title: str
    n_rows: int
    n_runs: int | None = None
    """Runs, those that rows share once; None without ``with_hours``."""
    h200_hours: float | None = None
    """Estimated hours on one H200 at 40 % of its peak speed; None without ``with_hours``, or if a run cannot be
    estimated."""


@checked_arguments
def list_studies(paper: str | None = None, *, with_hours: bool = False) -> list[ListedStudy]:
    """List the shipped studies in the order of their papers and tables.

    Args:
        paper: Only those of this paper: ``gheflati2022``, ``dosovitskiy2021``, ...
        with_hours: Plan the runs of each study and estimate their time; for all studies, this takes half a minute.

    Returns:
        One entry for each study.

    Raises:
        UsvitError: No study is of this paper.

    Example:
        >>> import usvit
        >>> [study.table for study in usvit.list_studies("gheflati2022")]
        ['Tables I and II', 'Table I', 'Table II', 'Table III', 'Table IV']
    """
    found = []
    for name, study in _selected(paper).items():
        key, table = (study.paper.key or "", study.paper.table) if study.paper else ("", "")
        listed = ListedStudy(name, key, table, study.title, study.n_rows)
        found.append(_with_hours(listed, study) if with_hours else listed)
    return found


def _with_hours(listed: ListedStudy, study: StudyConfig) -> ListedStudy:
    from usvit.upstream.studies.estimate import hours  # on use, because it imports PyTorch and timm
    from usvit.upstream.studies.plan import make_plan

    plan = make_plan(study)
    return replace(listed, n_runs=len(plan.runs), h200_hours=hours(plan))


def select_studies(paper: str | None = None) -> list[str]:
    """Return the names of the shipped studies, or of those of one paper.

    Raises:
        UsvitError: No study is of this paper.
    """
    return [*_selected(paper)]


def _selected(paper: str | None) -> dict[str, StudyConfig]:
    """Read the studies, and return those of one paper; arguments and errors as ``select_studies``."""
    studies = {name: load_study(name) for name in study_names()}
    keys = {name: (study.paper and study.paper.key) or "" for name, study in studies.items()}
    if paper is not None and paper not in keys.values():
        raise unknown("paper", paper, sorted(set(keys.values()) - {""}), "'usvit study list' shows all studies.")
    if not keys:
        raise UsvitError("This installation has no studies: its folder configs/studies is empty. Install usvit again.")
    return {name: studies[name] for name, key in keys.items() if paper in (None, key)}
