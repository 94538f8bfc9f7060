"""The schema of a study's YAML file."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from usvit.config.settings import cannot_be_used
from usvit.errors import UsvitError, unknown
from usvit.plain_yaml import parse_yaml
from usvit.resources import configs_dir
from usvit.studies.metric_names import check_figure


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _listed(value: Any) -> Any:
    """Accept a single name without brackets."""
    return [value] if isinstance(value, str | int) else value


def _printed(value: Any) -> Any:
    text = str(value).strip()
    try:
        fraction(text)
    except ValueError as error:
        raise ValueError(f"'{text}' is not a number, such as 86.7% or 0.95") from error
    return text


def fraction(printed: str) -> float:
    """Convert ``"86.7%"`` to 0.867, and ``"0.95"`` to 0.95."""
    number = float(printed.rstrip("% "))
    # Format as decimal text, because 86.7 / 100 is 0.8670000000000001.
    return float(f"{number / 100:.12g}") if printed.endswith("%") else number


Names = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1)]
Figure = Annotated[str, AfterValidator(check_figure)]
PrintedFigure = Annotated[str, BeforeValidator(_printed)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]


class Block(_Section):
    """A part of the grid: every data set with every model and every recipe."""

    datasets: Names
    """Values of ``--dataset``: ``busi``, ``busi+b``, or the file of a data card."""
    models: Names
    recipes: Names
    """Names of recipes, or YAML files."""
    variant: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")] | None = None
    """Distinguishes blocks that differ only in their settings."""
    settings: dict[str, Any] = {}
    """Settings that override the recipe."""


class PrintedRow(_Section):
    """The figures that the paper prints for one data set and model."""

    dataset: str
    model: str
    recipe: str | None = None
    """Needed if the grid contains the same data set and model with several recipes; likewise ``variant``."""
    variant: str | None = None
    printed_as: str | None = None
    """The name of the model in the paper."""
    figures: dict[Figure, PrintedFigure]
    """As printed: ``{accuracy: 86.7%, auc_macro_ovr: "0.95"}``."""


class Paper(_Section):
    """The table of a paper with which the study is compared."""

    source: str
    table: str
    protocol: str
    """How the paper measured, as far as it reports it."""
    rows: tuple[PrintedRow, ...]


class Resources(_Section):
    """The resources of one run."""

    cpus: Annotated[int, Field(ge=1)] | None = None
    """Threads of one run; null for the number that PyTorch chooses on the machine where the study is started."""
    gpus: Annotated[float, Field(ge=0)] | None = None
    """GPUs of one run with Ray; null for one if the cluster has GPUs and the device is not ``cpu``, otherwise none."""


class StudyConfig(_Section):
    """The content of a study's file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    title: str
    protocol: Literal["cv", "train"] = "cv"
    figures: Annotated[tuple[Figure, ...], BeforeValidator(_listed), Field(min_length=1)] = (
        "accuracy",
        "auc_macro_ovr",
    )
    seeds: Annotated[tuple[Seed, ...], BeforeValidator(_listed), Field(min_length=1)] = (0,)
    """The table shows the results of the first seed; if there are several, their spread is below it."""
    settings: dict[str, Any] = {}
    """Settings that override every recipe of the grid."""
    grid: Annotated[tuple[Block, ...], Field(min_length=1)]
    paper: Paper | None = None
    notes: tuple[str, ...] = ()
    """Notes for the reader: errata of the paper, choices that were made here."""
    resources: Resources = Resources()


_SECTIONS: dict[tuple[str, ...], type[BaseModel]] = {
    (): StudyConfig,
    ("grid",): Block,
    ("paper",): Paper,
    ("paper", "rows"): PrintedRow,
    ("resources",): Resources,
}


def study_names() -> list[str]:
    """Return the names of the shipped studies."""
    return sorted(path.stem for path in (configs_dir() / "studies").glob("*.yaml"))


def load_study(name_or_file: str) -> StudyConfig:
    """Read and check a study's file.

    Args:
        name_or_file: A name of ``study_names()``, or the path of a YAML file.

    Raises:
        UsvitError: The study or file does not exist or is not YAML, or a key or value is invalid (the error names the
            nearest known key).
    """
    path = configs_dir() / "studies" / f"{name_or_file}.yaml"
    if Path(name_or_file).suffix in (".yaml", ".yml"):
        path = Path(name_or_file)
        if not path.is_file():
            raise UsvitError(f"There is no study file {path}. Give a name ({', '.join(study_names())}) or a YAML file.")
    elif not path.is_file():
        raise unknown("study", name_or_file, study_names(), "A path to a .yaml file is accepted too.")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsvitError(f"The study {path} cannot be read: {' '.join(str(error).split())}") from error
    content = parse_yaml(text, f"The study {path}")
    if not isinstance(content, dict):
        raise UsvitError(f"The study {path} must be a mapping with name, title and grid (docs/how-to/study.md).")
    try:
        return StudyConfig.model_validate(content)
    except ValidationError as error:
        raise _explain(path, error) from error
    except UsvitError as error:  # the name of a figure
        raise UsvitError(f"In the study {path}: {error}") from error


def _explain(path: Path, error: ValidationError) -> UsvitError:
    problem = error.errors()[0]
    where = tuple(str(part) for part in problem["loc"] if not isinstance(part, int))
    section = _SECTIONS.get(where[:-1])
    if problem["type"] == "extra_forbidden" and section is not None:
        inside = f" of '{'.'.join(where[:-1])}'" if where[:-1] else ""
        return unknown(
            f"key{inside} in the study {path}:", where[-1], section.model_fields, "See docs/how-to/study.md."
        )
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "missing":
        return UsvitError(f"The study {path} lacks the key {key}. See docs/how-to/study.md.")
    return cannot_be_used(f"In the study {path}, {key}", problem)
