"""Settings of the analysis of a reader study."""

from typing import Annotated

from pydantic import Field

from usvit.config.comparison import MarginTest
from usvit.config.fields import Option
from usvit.config.sections import Section


class ReaderStudySettings(Section):
    """Columns of a table of answers, and what is analysed."""

    reader: Annotated[str | None, Option(metavar="COL")] = None
    """Column of the reader. (default: ``reader``, ``reader_id`` or ``readerID``)"""
    modality: Annotated[str | None, Option(metavar="COL")] = None
    """Column of the modality, such as unaided and aided. (default: ``modality``, ``modalityID``, ``treatment`` or
    ``test``; without one, a single modality)"""
    case: Annotated[str | None, Option(metavar="COL")] = None
    """Column of the case that is rated: an image, a lesion, an exam or a patient. (default: ``case``, ``case_id``,
    ``caseID`` or ``image_id``)"""
    patient: Annotated[str | None, Option(metavar="COL")] = None
    """Column of the patient. (default: ``patient_id`` or ``patient``; without one, every case is a
    patient of its own)"""
    truth: Annotated[str | None, Option(metavar="COL")] = None
    """Column of the reference class. (default: ``truth`` or ``label``; or rows whose reader is ``truth``, as iMRMC
    writes them)"""
    rating: Annotated[str | None, Option(metavar="COL")] = None
    """Column of the rating, a number that is higher for the positive class. (default: ``rating`` or ``score``)"""
    seconds: Annotated[str | None, Option(metavar="COL")] = None
    """Column of the time of a reading in seconds: also analyse reading times. (default: ``seconds``, if it exists)"""
    position: Annotated[str | None, Option(metavar="COL")] = None
    """Column of the place of a reading in the order of the reader: also analyse learning and fatigue within a session.
    (default: ``position``, if it exists)"""
    session: Annotated[str | None, Option(metavar="COL")] = None
    """Column of the session of a reading, within which positions count. (default: ``session``; without one, a reader
    has one session)"""
    repeat: Annotated[str | None, Option(metavar="COL")] = None
    """Column that is 1 for a second reading of a case by the same reader: these rows serve the agreement within readers
    only. (default: ``repeat``, if it exists)"""
    positive: Annotated[str | None, Option(metavar="CLASS")] = None
    """Word of the positive class in the column of the truth. (default: 1, ``malignant`` or true)"""
    model: Annotated[str | None, Option(metavar="READER")] = None
    """Reader that is a model: it is compared with the readers of each modality. (default: a reader named ``model``)"""
    positive_from: Annotated[float | None, Option(metavar="R")] = None
    """Lowest rating that counts as positive: also compare sensitivity and specificity."""
    model_from: Annotated[float | None, Option(metavar="P")] = None
    """Lowest score of the model that counts as positive. (default: its threshold, if the table is an export of ``usvit
    review``; or ``positive_from``)"""
    margin: Annotated[float | None, Option(metavar="M")] = None
    """Also test non-inferiority or equivalence with this margin, above 0 and below 0.5; state it before the study."""
    test: Annotated[MarginTest | None, Option(metavar="TEST")] = None
    """``noninferiority``: one is not worse by ``margin`` or more. ``equivalence``: they differ by less than ``margin``
    either way. (default: ``noninferiority``)"""
    effect: Annotated[float, Field(gt=0, lt=0.5), Option(metavar="D")] = 0.05
    """Difference that a later study of other size is to find, for its power."""
