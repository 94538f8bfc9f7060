"""What the server of ``usvit app`` tells its page: each answer is one of these records, which the page shows."""

from typing import Literal

from usvit.records.base import Count, Name, Number, Record, Text, key, optional

StepState = Literal["idle", "running", "finished", "failed", "stopped"]


class FolderLink(Record):
    """A folder that can be opened."""

    name: Text
    path: Text


class FolderListing(Record):
    """The answer to ``/api/folders``: the folders in a folder, without hidden ones."""

    path: Text
    parent: Text | None = key("Folder above; null for the root.")
    folders: list[FolderLink]
    left_out: Count = key("Folders that are not listed, because there are too many.")
    places: list[Text] = key("Where else one may look.")


class FileKind(Record):
    """Files of one ending."""

    ending: Text
    n: Count


class ImageFolder(Record):
    """The folder of images."""

    path: Text
    n_files: Count
    more: bool = key("There are more files than were counted.")
    kinds: list[FileKind]


class FoundModel(Record):
    """A finished run with networks."""

    path: Text
    name: Name
    data: Text = key("Data sets of the training.")
    n_images: Count
    classes: list[Text]


class ChosenLabels(Record):
    """The table of diagnoses, and how it is read (``LabelChoice``)."""

    name: Text
    label: Text
    image: Text
    words: Text
    drop_seen: bool


class StepProgress(Record):
    """How far a step is."""

    name: Text
    total: Count
    unit: Text
    done: Count
    note: Text


class StepReport(Record):
    """The step that runs, or the last one."""

    state: StepState
    step: Text | None = optional("Its name on the page.")
    command: Text | None = optional("The command line that does the same.")
    progress: StepProgress | None = optional()
    notes: list[Text] = key("The last warnings.")
    error: Text = key("One sentence; empty without an error.")
    link: Text | None = optional("Address of the page that the step serves.")


class ScoredImages(Record):
    """A folder of scores."""

    name: Name = key("Name of the folder, and of its page.")
    images: Count
    files: Count
    positive_class: Name
    positive: Count
    negative: Count
    undecided: Count
    unusual: Count
    seen: Count = key("Of the training, or of patients of the calibration.")
    failed: Count


class FigureText(Record):
    """A figure with its interval, in words."""

    name: Text
    text: Text


class DiagnosisTest(Record):
    """A test against diagnoses."""

    name: Name
    figures: list[FigureText]
    warnings: list[Text]


class FittedCalibration(Record):
    """The last fit to local patients."""

    name: Name
    images: Count
    said: list[Text]


class GivenAnswers(Record):
    """How far the reading of the cases is."""

    done: Count
    total: Count
    exported: bool


class AppResults(Record):
    """What the folder of results holds."""

    scores: ScoredImages | None = None
    rescored: ScoredImages | None = None
    tests: list[DiagnosisTest] = key("The last one first.")
    calibration: FittedCalibration | None = None
    answers: GivenAnswers | None = None
    problems: list[Text] = key("What cannot be read.")


class AppState(Record):
    """The answer to ``/api/state`` and to every action: all that the page shows."""

    images: ImageFolder | None
    model: FoundModel | None
    models: list[FoundModel]
    out: Text | None = key("Folder of the results.")
    labels: ChosenLabels | None
    commands: dict[str, Text] = key("Step that can be started -> the command line that does the same.")
    job: StepReport
    reading: StepReport
    results: AppResults


class CaseList(Record):
    """The answer to ``/api/cases``: the first rows of ``case_table``."""

    header: list[Text]
    rows: list[list[Text | Number]]
    n: Count = key("Number of all rows.")
