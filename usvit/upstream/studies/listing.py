"""The shipped studies: which table of which paper each one makes, and how long it takes."""

from dataclasses import dataclass

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
    n_runs: int
    """Runs without those that rows share."""
    h200_hours: float | None
    """Estimated hours on one H200 at 40 % of its peak speed; None if a run cannot be estimated."""


@checked_arguments
def list_studies(paper: str | None = None, *, with_hours: bool = True) -> list[ListedStudy]:
    """List the shipped studies in the order of their papers and tables.

    Args:
        paper: Only those of this paper: ``gheflati2022``, ``dosovitskiy2021``, ...
        with_hours: Estimate the time of each study, which builds those of its networks that are not counted in the zoo.

    Returns:
        One entry for each study.

    Raises:
        UsvitError: No study is of this paper.

    Example:
        >>> import usvit
        >>> [study.table for study in usvit.list_studies("gheflati2022", with_hours=False)]
        ['Tables I and II', 'Table I', 'Table II', 'Table III', 'Table IV']
    """
    from usvit.upstream.studies.estimate import hours
    from usvit.upstream.studies.plan import make_plan

    found = []
    for name, study in _selected(paper).items():
        plan = make_plan(study)
        found.append(
            ListedStudy(
                name,
                (study.paper and study.paper.key) or "",
                study.paper.table if study.paper else "",
                study.title,
                len(plan.rows),
                len(plan.runs),
                hours(plan) if with_hours else None,
            )
        )
    return found


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
