"""A study's YAML file: what may stand in it, and what it means."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from usvit.errors import UsvitError, shortened, unknown
from usvit.plain_yaml import parse_yaml
from usvit.resources import configs_dir
from usvit.study.figures import check_figure


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _listed(value: Any) -> Any:
    """One name may stand without brackets."""
    return [value] if isinstance(value, str | int) else value


def _printed(value: Any) -> Any:
    text = str(value).strip()
    try:
        fraction(text)
    except ValueError as error:
        raise ValueError(f"'{text}' is no number as a paper prints it, such as 86.7% or 0.95") from error
    return text


def fraction(printed: str) -> float:
    """``"86.7%"`` -> 0.867; ``"0.95"`` -> 0.95."""
    number = float(printed.rstrip("% "))
    # Through decimal text: 86.7 / 100 would be 0.8670000000000001.
    return float(f"{number / 100:.12g}") if printed.endswith("%") else number


Names = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1)]
Figure = Annotated[str, AfterValidator(check_figure)]
PrintedFigure = Annotated[str, BeforeValidator(_printed)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]


class Block(_Section):
    """A part of the grid: every data set with every model and every recipe."""

    datasets: Names
    """As ``--dataset`` takes them: ``busi``, ``busi+b``, a card's file."""
    models: Names
    recipes: Names
    """Names of recipes, or YAML files."""
    variant: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")] | None = None
    """Tells blocks apart that differ in their settings alone."""
    settings: dict[str, Any] = {}
    """Laid on the recipe: any sections of a configuration."""


class PrintedRow(_Section):
    """What the paper prints for one data set and model."""

    dataset: str
    model: str
    recipe: str | None = None
    """Needed where the grid holds the same data set and model with several recipes; so is ``variant``."""
    variant: str | None = None
    printed_as: str | None = None
    """What the paper calls the model."""
    figures: dict[Figure, PrintedFigure]
    """As printed: ``{accuracy: 86.7%, auc_macro_ovr: "0.95"}``."""


class Paper(_Section):
    """The table that the study stands beside."""

    source: str
    table: str
    protocol: str
    """How the paper measured, as far as it says so."""
    rows: tuple[PrintedRow, ...]


class Resources(_Section):
    """What one run gets."""

    cpus: Annotated[int, Field(ge=1)] | None = None
    """Threads of one run; null: as PyTorch chooses on the machine where the study is started."""
    gpus: Annotated[float, Field(ge=0)] | None = None
    """Ray only; null: one where the cluster has GPUs and the device is not ``cpu``, else none."""


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
    """The first one's results stand in the table; with several, their spread stands below it."""
    settings: dict[str, Any] = {}
    """Laid on every recipe of the grid."""
    grid: Annotated[tuple[Block, ...], Field(min_length=1)]
    paper: Paper | None = None
    notes: tuple[str, ...] = ()
    """What a reader must know: errata of the paper, what was chosen here."""
    resources: Resources = Resources()


_SECTIONS: dict[tuple[str, ...], type[BaseModel]] = {
    (): StudyConfig,
    ("grid",): Block,
    ("paper",): Paper,
    ("paper", "rows"): PrintedRow,
    ("resources",): Resources,
}


def study_names() -> list[str]:
    """Names of the shipped studies."""
    return sorted(path.stem for path in (configs_dir() / "studies").glob("*.yaml"))


def load_study(name_or_file: str) -> StudyConfig:
    """Read and check a study's file.

    Args:
        name_or_file: a name of ``study_names()``, or the path of a YAML file.

    Raises:
        UsvitError: no such study or file, no YAML, or a key or value that cannot be (the nearest known key is named).
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
    except UsvitError as error:  # of a figure's name
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
    message = problem["msg"].removeprefix("Value error, ")
    given = "" if problem["type"] == "value_error" else f" (got {shortened(repr(problem['input']))})"
    return UsvitError(f"In the study {path}, {key} cannot be used: {message}{given}.")
