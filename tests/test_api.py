"""The public interface: what ``import usvit`` offers, and that every example of its documentation runs."""

import ast
import doctest
import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

import usvit
from tests.conftest import REPOSITORY
from tests.settings_tables import check_page
from usvit.cli import app
from usvit.data.phantom import PhantomSpec, write_phantom

FUNCTIONS = (
    "cross_validate",
    "train",
    "evaluate",
    "compare",
    "compare_readers",
    "mrmc",
    "ensemble",
    "score",
    "load_model",
    "explain",
    "audit",
    "split",
    "export",
    "sign_model",
    "push_model",
    "pull_model",
    "recalibrate",
    "report",
    "load_dataset",
    "list_models",
    "create_model",
    "pretrain",
    "transfer",
    "load_segmenter",
    "compare_masks",
    "load_concepts",
    "test",
    "run_study",
    "best_of_study",
    "measure_shift",
    "compare_translators",
    "list_studies",
    "benchmark",
    "plan_shapes",
    "fit_shapes",
    "predict_shape",
    "watch",
    "plan_validation",
    "plan_accuracy",
    "plan_comparison",
    "repeatability",
    "retest",
    "send_dicom",
    "check_node",
    "serve_node",
    "node_status",
    "pull_studies",
    "replay_study",
    "review",
    "review_status",
    "export_review",
    "merge_reviews",
    "open_app",
)
"""In the order in which their examples build on each other."""

COMMANDS = {
    "cv": "usvit.experiments.cross_validate",
    "train": "usvit.experiments.train",
    "pretrain": "usvit.upstream.api.pretrain_sweep",
    "transfer": "usvit.upstream.api.transfer",
    "test": "usvit.upstream.api.test",
    "ensemble": "usvit.experiments.ensemble",
    "study run": "usvit.upstream.studies.run_study",
    "study best": "usvit.upstream.studies.best_of_study",
    "study shift": "usvit.upstream.studies.measure_shift",
    "study translation": "usvit.upstream.translation.api.compare_translators",
    "evaluate": "usvit.evaluation.evaluate",
    "recalibrate": "usvit.scoring.recalibrate",
    "compare": "usvit.reports.compare",
    "report": "usvit.reports.report",
    "score": "usvit.scoring.score",
    "explain": "usvit.explaining.explain",
    "retest": "usvit.retesting.retest",
    "bench": "usvit.upstream.bench.benchmark",
    "data list": "usvit.data.datasets.card_names",
    "data info": "usvit.data.datasets.load_card",
    "data prepare": "usvit.data.datasets.prepare",
    "data audit": "usvit.reports.audit",
    "data link": "usvit.data.datasets.write_link",
    "data split": "usvit.data.datasets.split",
    "data preview": "usvit.data.audit.write_preview",
    "data phantom": "usvit.data.phantom.write_phantom",
    "data coarse": "usvit.upstream.sources.wordnet.coarse_imagenet",
    "models list": "usvit.models.rows",
    "models info": "usvit.models.describe_model",
    "models hub": "usvit.models.foundation_models",
    "models export": "usvit.exporting.export",
    "models pin": "usvit.models.add_pin",
    "models push": "usvit.publishing.push_model",
    "models pull": "usvit.publishing.pull_model",
    "models sign": "usvit.publishing.sign_model",
    "watch": "usvit.monitoring.watch",
    "mrmc": "usvit.reports.mrmc",
    "plan validation": "usvit.planning.plan_validation",
    "plan accuracy": "usvit.planning.plan_accuracy",
    "plan compare": "usvit.planning.plan_comparison",
    "shape plan": "usvit.upstream.scaling.plan_shapes",
    "shape fit": "usvit.upstream.scaling.fit_shapes",
    "shape predict": "usvit.upstream.scaling.predict_shape",
    "node serve": "usvit.node.serve_node",
    "node status": "usvit.node.node_status",
    "node doctor": "usvit.node.check_node",
    "node pull": "usvit.node.pull_studies",
    "node replay": "usvit.node.replay_study",
    "node mercure": "usvit.node.score_mercure_task",
    "dicom send": "usvit.node.send_dicom",
    "review serve": "usvit.reviewing.review",
    "review status": "usvit.reviewing.review_status",
    "review export": "usvit.reviewing.export_review",
    "review merge": "usvit.reviewing.merge_reviews",
    "app": "usvit.desktop.open_app",
    "kit build": "usvit.kit.build_kit",
    "kit verify": "usvit.kit.verify_kit",
    "kit install": "usvit.kit.install_kit",
    "docs": "usvit.resources.documentation_page",
    "doctor": "usvit.installation.check_installation",
    "recipes": "usvit.config.listing.list_recipes",
    "settings": "usvit.config.listing.list_settings",
}
"""Command -> the one function that does its work."""


API_PAGE = REPOSITORY / "docs" / "reference" / "api.md"
API_INTRODUCTION = """# Python API

Every function of the package `usvit`: the site shows arguments, result, errors and an example, and so does
`help(usvit.score)`. [How to use usvit from Python](../how-to/python.md) shows them at work. Arguments of a wrong type,
and settings with a wrong name, are refused before anything is done. `tests/test_api.py` makes this page.

"""


def test_the_page_of_the_functions_has_all_of_them():
    names = [*FUNCTIONS[:2], *sorted(FUNCTIONS[2:])]
    fresh = API_INTRODUCTION + "".join(f"\n```{{eval-rst}}\n.. autofunction:: usvit.{name}\n```\n" for name in names)
    check_page(API_PAGE, fresh, "tests/test_api.py")


def test_import_loads_nothing_heavy():
    code = "import sys, usvit; print({'torch', 'pandas', 'pydantic', 'rich'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"


def test_records_are_read_without_pandas():
    code = "import sys, usvit.records; print({'torch', 'pandas', 'pyarrow'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"


def test_the_package_offers_its_functions_and_packages():
    packages = {"data", "metrics", "models", "training"}
    classes = {"ConceptScorer", "Predictor", "RunResult", "Segmenter", "UsvitError"}
    assert {*FUNCTIONS, *packages, *classes} == set(dir(usvit)) - {"__version__"}
    assert callable(usvit.metrics.auc) and callable(usvit.training.Trainer)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_documents_arguments_result_errors_and_an_example(name):
    text = inspect.getdoc(getattr(usvit, name))
    for heading in ("Args:", "Returns:", "Raises:", ">>> "):
        assert heading in text, f"{name} has no {heading}"


class Nothing:
    """An object of a type that no argument has."""


TYPED_PARAMETERS = [
    (name, parameter)
    for name in FUNCTIONS
    for parameter in inspect.signature(getattr(usvit, name)).parameters.values()
    if parameter.kind is not parameter.VAR_KEYWORD
]


@pytest.mark.parametrize(("name", "parameter"), TYPED_PARAMETERS, ids=lambda one: getattr(one, "name", one))
def test_an_argument_of_a_wrong_type_is_named_before_anything_is_done(name, parameter, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function = getattr(usvit, name)
    arguments = {
        one.name: "x" if one.annotation is not int else 1
        for one in inspect.signature(function).parameters.values()
        if one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    }
    with pytest.raises(TypeError, match=rf"^{function.__name__}\(\): .*\b{parameter.name} must be .*, not a Nothing"):
        if parameter.kind is parameter.VAR_POSITIONAL:
            function("x", Nothing(), **arguments)
        else:
            function(**(arguments | {parameter.name: Nothing()}))
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def desk(tmp_path_factory, small_phantom):
    """A folder with images, two runs' worth of examples and a small phantom in place of the embedded one."""
    folder = tmp_path_factory.mktemp("desk")
    embedded = folder / "cache" / "phantom" / PhantomSpec().key
    embedded.parent.mkdir(parents=True)
    embedded.symlink_to(small_phantom)
    images = folder / "images"
    images.mkdir()
    for picture in sorted(small_phantom.rglob("*.png"))[:3]:
        (images / picture.name).write_bytes(picture.read_bytes())
    for seed, name in enumerate(("near", "far"), start=11):
        write_phantom(PhantomSpec(n=72, seed=seed, size=64), folder / "scanners" / name, workers=1)
    before, cache = Path.cwd(), os.environ.get("USVIT_CACHE")
    os.environ["USVIT_CACHE"] = str(folder / "cache")
    os.chdir(folder)
    yield folder
    os.chdir(before)
    os.environ.pop("USVIT_CACHE")
    if cache is not None:
        os.environ["USVIT_CACHE"] = cache


@pytest.mark.slow
@pytest.mark.usefixtures("desk", "without_report")  # the example of report makes the page
def test_the_examples_run_one_after_the_other():
    for name in FUNCTIONS:
        if name == "compare":  # needs a second run on the same images and folds
            small = {"model__image_size": 32, "split__folds": 2, "train__steps": 1, "device": "cpu", "seed": 0}
            usvit.cross_validate(
                "phantom", "timm:test_vit", recipe="demo", weights="scratch", out="runs/other", **small
            )
        if name == "best_of_study":
            study = {"name": "small", "title": "Two tiny networks", "protocol": "cv", "columns": ["accuracy"]}
            study["settings"] = {"model": {"weights": "scratch", "image_size": 32}, "device": "cpu"}
            study["settings"] |= {"split": {"folds": 2}, "train": {"epochs": None, "steps": 2}}
            names = ["timm:test_resnet", "timm:test_vit"]
            study["grid"] = [{"datasets": ["phantom"], "models": names, "recipes": ["demo"]}]
            Path("small.yaml").write_text(json.dumps(study))
            usvit.run_study("small.yaml")
        function = getattr(usvit, name)
        (test,) = doctest.DocTestFinder(recurse=False).find(
            function, name, module=False, globs=dict(vars(inspect.getmodule(function)))
        )
        assert test.examples, name
        output = []
        result = doctest.DocTestRunner(verbose=False).run(test, out=output.append)
        assert result.failed == 0, "".join(output)


EXAMPLES_ELSEWHERE = sorted(
    ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")
    for path in (REPOSITORY / "usvit").rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", EXAMPLES_ELSEWHERE)
def test_the_examples_of_all_other_functions_run(module):
    finder, imported = doctest.DocTestFinder(), importlib.import_module(module)
    for test in finder.find(imported):
        if test.name.rpartition(".")[2] not in FUNCTIONS:
            assert doctest.DocTestRunner(verbose=False).run(test).failed == 0, test.name


@pytest.mark.slow
@pytest.mark.usefixtures("desk", "without_report")
def test_the_script_of_the_readme_runs():
    page = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (script,) = [block.partition("```")[0] for block in page.split("```python\n")[1:]]
    assert len(script.splitlines()) <= 15
    exec(script, {"__name__": "__main__"})


@pytest.mark.slow
@pytest.mark.usefixtures("desk", "without_report")
def test_the_blocks_of_the_page_on_python_run_one_after_the_other(capsys):
    page = (REPOSITORY / "docs" / "how-to" / "python.md").read_text(encoding="utf-8")
    script = "".join(block.partition("```")[0] for block in page.split("```python\n")[1:])
    exec(script, {"__name__": "__main__"})
    said = capsys.readouterr().out
    assert "Unknown model 'vit_b23'" in said and "seed must be int | None, not 'first'" in said


def commands():
    root = typer.main.get_command(app).import_all()
    for name, command in root.commands.items():
        for inner in getattr(command, "commands", {None: command}).items():
            yield (name if inner[0] is None else f"{name} {inner[0]}"), inner[1]


def test_every_command_of_the_command_line_is_listed():
    assert {name for name, _ in commands()} == set(COMMANDS)


@pytest.mark.parametrize(("name", "command"), list(commands()), ids=[name for name, _ in commands()])
def test_a_command_calls_the_function_that_does_its_work(name, command):
    path, _, function = COMMANDS[name].rpartition(".")
    tree = ast.parse(inspect.getsource(inspect.getmodule(command.callback)))
    called = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    alias = {
        item.asname or item.name: f"{node.module}.{item.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for item in node.names
    }
    full = {alias.get(one.partition(".")[0], one.partition(".")[0]) + "".join(one.partition(".")[1:]) for one in called}
    chosen = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert COMMANDS[name] in full or f"{path.rpartition('.')[2]}.{function}" in chosen, f"{name}: {sorted(full)}"
