"""The schema of a study's YAML file."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from usvit.config.settings import cannot_be_used
from usvit.errors import UsvitError, unknown
from usvit.plain_data import Settings
from usvit.plain_yaml import read_yaml
from usvit.resources import configs_dir
from usvit.upstream.records.study import Kind
from usvit.upstream.studies.kinds import check_figure
from usvit.upstream.studies.metric_names import OF_NETWORK
from usvit.upstream.studies.printed import Printed, parse_printed


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _listed(value: Any) -> Any:
    """Accept a single name without brackets."""
    return [value] if isinstance(value, str | int) else value


def _printed(value: Any) -> Any:
    return value if isinstance(value, Printed) else parse_printed(value)


Names = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1)]
_PlainName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
_PrintedFigure = Annotated[Printed, BeforeValidator(_printed)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]


class Step(_Section):
    """One run of a row.

    The value ``${NAME}`` in any entry stands for the run directory of the row's step NAME, which is run before:
    ``weights: ${train}``, ``settings: {beit: {tokenizer: "${words}"}}``.
    """

    run: Kind | None = None
    """The command: ``usvit cv``, ``train``, ``pretrain``, ``transfer``, ``test`` or ``bench``. Only a row's own changes
    of a step may leave it out."""
    recipe: str | None = None
    """Name of a recipe, or a YAML file."""
    cell: str | None = None
    """``pretrain``, ``transfer``: a cell of the recipe's sweep."""
    model: str | None = None
    """Default: the model of the row. A transfer or test of a run has the network of the run; for a transfer, this model
    only chooses among the recipe's ``sizes``."""
    weights: str | None = None
    """As ``--weights``: ``${NAME}``, ``hub``, ``hub:UPSTREAM``, ``scratch`` or a file. Default: as the recipe says."""
    upstream: Names | None = None
    """``transfer``: several weights to choose from, instead of ``weights``."""
    dataset: str | None = None
    """Data card, as ``--dataset``."""
    source: str | None = None
    """``pretrain``, ``transfer``, ``test``: images, as ``--source``."""
    how: str | None = None
    """``transfer``: the method."""
    protocol: str | None = None
    """``bench``: the protocol of the measurement."""
    variant: _PlainName | None = None
    """``cv``, ``train``: distinguishes runs that differ only in their settings."""
    seed: Seed | None = None
    """Seed of this run whatever the seed of the study is: runs that need it differ by their own seeds alone, such as
    several fine-tunings of one pre-training."""
    settings: Settings = {}
    """Settings that override the recipe; sections, or dotted keys."""


class FigureColumn(_Section):
    """A figure of the table: where it comes from, and how it is compared with the printed one."""

    figure: str
    """Name of the figure in the result of its run (``usvit.upstream.studies.metric_names``), or ``params`` or ``macs``
    of the row's network."""
    of: Names | None = None
    """The step whose run has the figure. Several steps: the mean over them. Default: the only step of the row."""
    minus: str | None = None
    """A step whose figure is subtracted, such as that without a change."""
    title: str | None = None
    """Default: that of the figure."""
    tolerance: _PrintedFigure | None = None
    """Largest difference from the printed figure that counts as agreement, such as 0.3%. null: the printed figure
    agrees if it lies within our 95% interval."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        check_figure(self.figure)
        if self.figure in OF_NETWORK and (self.of or self.minus):
            raise ValueError(f"the figure {self.figure} is of the row's network: remove 'of' and 'minus'")
        if self.minus is not None and self.of is None:
            raise ValueError("a difference needs 'of', the step from whose figure 'minus' is subtracted")
        return self


class Row(_Section):
    """A row of the table: its network, the runs that it needs, and the figures that the paper prints."""

    name: str
    """The row as the paper prints it."""
    group: str | None = None
    """Heading above rows that belong together, such as a data set."""
    model: str | None = None
    """Model of every step that names none and does not take it from its weights."""
    settings: Settings = {}
    """Settings of every ``cv``, ``train`` and ``pretrain`` step of the row; their ``model`` also counts for ``params``,
    ``macs`` and ``bench``."""
    steps: dict[str, Step | None] = {}
    """Changes of the study's steps by name, key by key; null removes a step, and a new name adds one."""
    printed: dict[str, _PrintedFigure] = {}
    """Column -> figure as printed: ``81.8%``, ``81.8% ± 0.2%``, ``84% to 85%``, ``5.6``."""
    note: str | None = None
    """Note below the table: an erratum, or what the paper leaves open for this row."""


class Block(_Section):
    """A part of the grid: every data set with every model and every recipe, without printed figures."""

    datasets: Names
    """Values of ``--dataset``: ``busi``, ``busi+b``, or the file of a data card."""
    models: Names
    recipes: Names
    """Names of recipes, or YAML files."""
    variant: _PlainName | None = None
    """Distinguishes blocks that differ only in their settings."""
    settings: Settings = {}
    """Settings that override the recipe."""


class Paper(_Section):
    """The table of a paper with which the study is compared."""

    key: _PlainName | None = None
    """Short name of the paper, by which ``usvit study list --paper`` finds the study."""
    source: Annotated[str, Field(min_length=1)]
    table: Annotated[str, Field(min_length=1)]
    protocol: str
    """How the paper measured, as far as it reports it."""


class Resources(_Section):
    """The resources of one run."""

    cpus: Annotated[int, Field(ge=1)] | None = None
    """Threads of one run; null for the number that PyTorch chooses on the machine where the study is started."""
    gpus: Annotated[float, Field(ge=0)] | None = None
    """GPUs of one run with Ray; null for one if the cluster has GPUs and the device is not ``cpu``, otherwise none."""


def _as_columns(value: Any) -> Any:
    """Accept a list of figures' names, which are then the columns' names too."""
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list | tuple):
        return {str(name): {"figure": name} for name in value}
    if isinstance(value, dict):
        return {key: {"figure": one} if isinstance(one, str) else one for key, one in value.items()}
    return value


class StudyConfig(_Section):
    """The content of a study's file."""

    name: _PlainName
    title: str
    columns: Annotated[dict[str, FigureColumn], BeforeValidator(_as_columns), Field(min_length=1)] = {
        "accuracy": FigureColumn(figure="accuracy"),
        "auc_macro_ovr": FigureColumn(figure="auc_macro_ovr"),
    }
    """The figures of the table. A list of figures' names is accepted too."""
    correlations: tuple[tuple[str, str], ...] = ()
    """Pairs of columns whose correlation stands below the table, over all rows and seeds."""
    seeds: Annotated[tuple[Seed, ...], BeforeValidator(_listed), Field(min_length=1)] = (0,)
    """The table shows the results of the first seed; if there are several, their spread is below it."""
    settings: Settings = {}
    """Settings of every run, below those of rows, steps and blocks."""
    steps: dict[str, Step] = {}
    """The runs of every row."""
    rows: tuple[Row, ...] = ()
    grid: tuple[Block, ...] = ()
    """Rows with one cross-validation (or hold-out) each: every data set x model x recipe."""
    protocol: Literal["cv", "train"] = "cv"
    """The command of the grid's runs."""
    paper: Paper | None = None
    tiny: Settings = {}
    """Settings of every run at ``--scale tiny``, where the general ones do not fit."""
    notes: tuple[str, ...] = ()
    """Notes for the reader: errata of the paper, choices that were made here."""
    resources: Resources = Resources()

    @property
    def n_rows(self) -> int:
        """Number of rows, those of the grid included."""
        return len(self.rows) + sum(len(one.datasets) * len(one.models) * len(one.recipes) for one in self.grid)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.rows and not self.grid:
            raise ValueError("it has neither 'rows' nor a 'grid'")
        if any(row.printed for row in self.rows) and self.paper is None:
            raise ValueError("rows have printed figures, and 'paper' with their source is missing")
        for name, step in self.steps.items():
            if step.run is None:
                raise ValueError(f"steps.{name} lacks 'run': cv, train, pretrain, transfer, test or bench")
        for pair in self.correlations:
            if lost := [key for key in pair if key not in self.columns]:
                known = ", ".join(self.columns)
                raise ValueError(f"correlations names '{lost[0]}', which is not one of the columns ({known})")
            if pair[0] == pair[1]:
                raise ValueError(f"correlations names the column '{pair[0]}' twice")
        for row in self.rows:
            if unknown_columns := [key for key in row.printed if key not in self.columns]:
                raise ValueError(
                    f"the row '{row.name}' prints '{unknown_columns[0]}', which is not one of the columns "
                    f"({', '.join(self.columns)})"
                )
        return self


_SECTIONS: dict[tuple[str, ...], type[BaseModel]] = {
    (): StudyConfig,
    ("grid",): Block,
    ("rows",): Row,
    ("columns", "*"): FigureColumn,
    ("steps", "*"): Step,
    ("rows", "steps", "*"): Step,
    ("paper",): Paper,
    ("resources",): Resources,
}
_DIGITS = re.compile(r"(\d+)")


def study_names() -> list[str]:
    """Return the names of the shipped studies, table 2 before table 10."""
    names = (path.stem for path in (configs_dir() / "studies").glob("*.yaml"))
    return sorted(names, key=lambda name: [int(part) if part.isdecimal() else part for part in _DIGITS.split(name)])


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
        if not path.exists():
            raise UsvitError(f"There is no study file {path}. Give a name ({', '.join(study_names())}) or a YAML file.")
    elif not path.is_file():
        raise unknown("study", name_or_file, study_names(), "A path to a .yaml file is accepted too.")
    content = read_yaml(path, "study")
    if not isinstance(content, dict):
        raise UsvitError(f"The study {path} must be a mapping with name, title and grid ('usvit docs study').")
    try:
        return StudyConfig.model_validate(content)
    except ValidationError as error:
        raise _explain(path, error) from error
    except UsvitError as error:  # the name of a figure
        raise UsvitError(f"In the study {path}: {error}") from error


def _explain(path: Path, error: ValidationError) -> UsvitError:
    problem = error.errors()[0]
    where = tuple(str(part) for part in problem["loc"] if not isinstance(part, int))
    within = where[:-1]
    named = len(within) > 1 and within[-2] in ("steps", "columns")
    section = _SECTIONS.get((*within[:-1], "*") if named else within)
    if problem["type"] == "extra_forbidden" and section is not None:
        inside = f" of '{'.'.join(where[:-1])}'" if where[:-1] else ""
        return unknown(f"key{inside} in the study {path}:", where[-1], section.model_fields, "See 'usvit docs study'.")
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "missing":
        return UsvitError(f"The study {path} lacks the key {key}. See 'usvit docs study'.")
    if not key:  # entries that contradict each other
        return UsvitError(f"The study {path} cannot be used: {problem['msg'].removeprefix('Value error, ')}.")
    return cannot_be_used(f"In the study {path}, {key}", problem)
