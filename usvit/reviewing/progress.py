"""The progress of a study, for who runs it."""

from pathlib import Path

from usvit.arguments import checked_arguments
from usvit.records import fitting
from usvit.reviewing.answers import FILE, StudyAnswers
from usvit.reviewing.reader_desk import ReaderDesk
from usvit.reviewing.records import ReaderProgress, ReviewRecord
from usvit.reviewing.settings import load_review


@checked_arguments
def review_status(study: str | Path) -> ReviewRecord:
    """Tell how far the readers of a study are.

    Args:
        study: the file of the study.

    Returns:
        The content of ``usvit review status --json`` (docs/reference/review.schema.json).

    Raises:
        UsvitError: the file cannot be used, or the study has not begun.

    Example:
        >>> import usvit
        >>> [(one.name, one.done) for one in usvit.review_status("study.yaml").readers]  # doctest: +SKIP
        [('A', 120), ('B', 88)]
    """
    settings = load_review(study)
    assert settings.out is not None
    answers = StudyAnswers(settings.out, settings)
    try:
        with fitting(settings.out / FILE):
            return progress_of(answers)
    finally:
        answers.close()


def progress_of(answers: StudyAnswers) -> ReviewRecord:
    """Return the progress of an open study."""
    settings = answers.settings
    counts = answers.rows("SELECT (SELECT COUNT(*) FROM cases) AS cases, (SELECT COUNT(*) FROM images) AS images")[0]
    names = [*settings.readers, *([settings.arbiter] if settings.arbiter else [])]
    return ReviewRecord(
        title=settings.title,
        study=answers.identity,
        n_cases=counts["cases"],
        n_images=counts["images"],
        readers=[_of_reader(answers, name) for name in names],
    )


def _of_reader(answers: StudyAnswers, name: str) -> ReaderProgress:
    desk = ReaderDesk(answers, name)
    mean = "SELECT AVG(seconds) AS mean FROM readings WHERE reader = ? AND answered_at IS NOT NULL"
    finished, opens_at = desk.where()
    return ReaderProgress(
        name=name,
        **desk.progress().content(),
        mean_seconds=answers.rows(mean, name)[0]["mean"],
        finished=finished,
        opens_at=opens_at,
    )
