"""The files of a test-retest: ``repeatability.json``, its page, and the scores of changed images."""

from pathlib import Path

from usvit import __version__
from usvit.evaluation import ScorePairs, most_flips
from usvit.files import OutputFolder
from usvit.records import ChangeRecord, RepeatabilityRecord, RepeatsRecord, UnitRecord, save_record
from usvit.reports import write_repeatability_page

RECORD, PAGE, SCORES = "repeatability.json", "repeatability.html", "changes.csv"


def repeatability_record(
    name: str,
    positive: str,
    warnings: list[str],
    unit: UnitRecord | None,
    *,
    repeats: RepeatsRecord | None = None,
    changes: list[ChangeRecord] | None = None,
    weights: dict[str, str] | None = None,
) -> RepeatabilityRecord:
    """Return the record of repeats, or of changes that networks with these weights scored."""
    return RepeatabilityRecord(
        name=name,
        positive_class=positive,
        repeats=repeats,
        changes=changes,
        most_flips=None if changes is None else most_flips(changes, "image" if unit is None else unit.unit),
        weights_sha256=weights,
        unit=unit,
        warnings=warnings,
        created_with=f"usvit {__version__}",
    )


def output_folder(out: Path) -> OutputFolder:
    """Return the folder of a test-retest, whose files each call replaces."""
    return OutputFolder(out, "a test-retest", files=(RECORD, PAGE, SCORES))


def written(record: RepeatabilityRecord, out: Path | None, pairs: ScorePairs | None = None) -> RepeatabilityRecord:
    """Write the record and its page into a folder, if there is one, and return the record."""
    if out is not None:
        save_record(out / RECORD, record)
        write_repeatability_page(out / PAGE, record, pairs)
    return record
