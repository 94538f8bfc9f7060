"""The house stands as designed: imports go down only, nothing ships that must not."""

import ast
import functools
import os
import re
import subprocess
from collections import Counter
from importlib.metadata import distribution, requires

import networkx as nx
import pytest

from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "usvit"

ROOMS = {
    "cli": "parses options, calls one public function, prints",
    "scaling": "scaling laws of a network's shape: sweeps, fits, predictions",
    "studies": "many runs as one: plan, engines, tables",
    "node": "a DICOM service: receives, scores, sends back, and is watched",
    "experiments": "cross-validation, pre-training, transfer and tests of classifiers; the run directory",
    "retesting": "test-retest: repeats in the predictions, controlled changes of test images",
    "scoring": "scores files and DICOM: discovery, readers, models, journal, tables, DICOM out",
    "planning": "sample sizes of studies: validation, accuracy, comparison",
    "bench": "speed and memory by the protocols of the papers",
    "exporting": "safetensors, ONNX and MONAI bundles, checked against PyTorch",
    "explaining": "attention and saliency, held against lesion masks",
    "reports": "records in, pages out",
    "pretraining": "the tasks of pre-training: supervised, distilled, masked, contrastive",
    "training": "the trainer, tasks, optimizers, checkpoints, several processes",
    "evaluation": "from predictions and runs to the records of metrics",
    "models": "zoo, architectures, weights, adaptation, OOD",
    "data": "files, data sets, splits, near-duplicates, transforms, loading, phantom, audit",
    "metrics": "statistics on arrays, with intervals that count groups",
    "config": "the one schema of settings",
    "records": "every file that is written or read",
}
"""Rooms of the package and what each is for."""

FLOORS = [
    {"__main__"},
    {"cli"},
    {"scaling"},
    {"studies"},
    {"experiments", "node"},
    {"scoring", "retesting"},
    {"bench", "explaining", "planning"},
    {"exporting"},
    {"reports"},
    {"pretraining"},
    {"training"},
    {"evaluation"},
    {"models"},
    {"data"},
    {"config", "progress", "cluster", "metrics", "threads"},
    {"records", "pseudonyms"},
    {"plain_yaml", "estimate_text"},
    {"resources", "seeding", "files", "limited", "logging", "machine_load", "web", "estimate"},
    {"terminal", "markup", "arguments", "representation"},
    {"errors"},
]
"""Rooms from the top floor down; a room imports from floors below it, or from itself."""

DATA_FLOORS = [
    {"audit"},
    {"loading"},
    {"datasets"},
    {"transforms", "splits"},
    {"near_duplicates", "phantom"},
    {"burned_in"},
    {"io"},
]
"""The same inside ``usvit.data``."""

FACADES = sorted(
    path.parent
    for path in PACKAGE.rglob("__init__.pyi")
    if path.parent.name not in ("usvit", "data", "metrics")  # metrics is a library of statistics, one file for each
)
"""Rooms that are entered by their facade; the rooms of ``data`` have one each."""


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py").removesuffix(".pyi")


def module_of(path):
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def nodes_of(path):
    """Return all nodes of the syntax tree of a file."""
    return list(ast.walk(ast.parse(path.read_text())))


@functools.cache
def imports_of(path):
    """Return the names of the modules that a file imports, wherever in the file."""
    modules = []
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules.append(node.module)
        elif isinstance(node, ast.Import):
            modules += (alias.name for alias in node.names)
    return modules


def files_imported():
    """Module -> the modules of usvit that its file imports, wherever in the file."""
    modules = {module_of(path): path for path in PACKAGE.rglob("*.py")}
    imported = {}
    for module, path in modules.items():
        imported[module] = set()
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names} & modules.keys()
                imported[module] |= inner or ({node.module} & modules.keys())
            elif isinstance(node, ast.Import):
                imported[module] |= {alias.name for alias in node.names} & modules.keys()
    return imported


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_from_floors_below(path):
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    inside = {f"data.{room}": number for number, rooms in enumerate(DATA_FLOORS) for room in rooms}
    if path == PACKAGE / "__init__.py":
        return
    own = path.relative_to(PACKAGE).parts
    for module in imports_of(path):
        parts = module.split(".")
        if parts[0] != "usvit" or len(parts) < 2:
            continue
        if parts[1] != room_of(path):
            assert floor[parts[1]] > floor[room_of(path)], f"{path} imports {module}"
        elif parts[1] == "data" and len(parts) > 2 and len(own) > 2 and parts[2] != own[1]:
            assert inside[f"data.{parts[2]}"] > inside[f"data.{own[1]}"], f"{path} imports {module}"


@pytest.mark.slow
def test_no_file_takes_part_in_an_import_circle():
    graph = nx.DiGraph()
    for module, imported in files_imported().items():
        graph.add_edges_from((module, other) for other in imported if other != module)
    assert [sorted(one) for one in nx.strongly_connected_components(graph) if len(one) > 1] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_is_entered_by_its_facade(path):
    for folder in FACADES:
        facade = module_of(folder / "__init__.py")
        if folder in path.parents:
            continue
        inner = [module for module in imports_of(path) if module.startswith(f"{facade}.")]
        assert inner == [], f"{path} imports {inner} past the facade {facade}"


@pytest.mark.slow
def test_no_class_name_means_two_things():
    named = Counter(
        node.name for path in PACKAGE.rglob("*.py") for node in nodes_of(path) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in named.items() if count > 1] == []


@pytest.mark.slow
def test_the_page_of_the_architecture_shows_the_rooms_as_they_are():
    page = REPOSITORY / "docs" / "explanation" / "architecture.md"
    start, end = "<!-- rooms: drawn by the test -->", "<!-- end of rooms -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(start)
    _, _, after = rest.partition(end)
    fresh = f"{before}{start}\n{drawing()}{end}{after}"
    if os.environ.get("USVIT_RENEW"):
        page.write_text(fresh, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == fresh, (
        "the rooms have changed: USVIT_RENEW=1 python -m pytest tests/test_house.py -k architecture"
    )


def drawing():
    """The rooms by floor as a Mermaid diagram, an arrow for each room that imports from another."""
    arrows = Counter()
    for module, imported in files_imported().items():
        room = module.split(".")[1] if "." in module else ""
        arrows.update((room, other.split(".")[1]) for other in imported if "." in other and other.split(".")[1] != room)
    lines = ["```mermaid", "flowchart TD"]
    for number, rooms in enumerate(FLOORS):
        shown = [room for room in ROOMS if room in rooms]
        if shown:
            lines.append(f'  subgraph floor{number}[" "]')
            lines += [f'    {room}["<b>{room}</b><br>{ROOMS[room]}"]' for room in shown]
            lines.append("  end")
    # Only what no longer way implies, so that the picture can be read.
    graph = nx.DiGraph((a, b) for a, b in arrows if a in ROOMS and b in ROOMS)
    lines += [f"  {a} --> {b}" for a, b in sorted(nx.transitive_reduction(graph).edges)]
    lines.append("```")
    return "\n".join(lines) + "\n"


@pytest.mark.slow
def test_the_pure_rooms_know_no_torch():
    for room in ("metrics", "evaluation", "reports", "cli"):
        for path in (PACKAGE / room).rglob("*.py"):
            assert not [name for name in imports_of(path) if name.split(".")[0] in ("torch", "timm")], path


@pytest.mark.slow
def test_albumentations_is_only_an_oracle_of_tests():
    assert [path.name for path in PACKAGE.rglob("*.py") if "albumentations" in set(imports_of(path))] == []


def installed_needs(name, seen):
    """Every distribution that ``name`` needs at run time, all the way down."""
    for line in requires(name) or []:
        if "extra ==" in line or "extra==" in line:
            continue
        need = re.match(r"[A-Za-z0-9._-]+", line)[0]
        if need.lower() not in seen:
            try:
                distribution(need)
            except ModuleNotFoundError:
                continue  # for another system or Python
            seen.add(need.lower())
            installed_needs(need, seen)
    return seen


def test_nothing_that_usvit_needs_is_under_the_gpl():
    needs = installed_needs("usvit", set())
    assert {"torch", "timm", "albumentations", "braceexpand", "tensorboardx", "protobuf", "fsspec"} <= needs
    assert needs.isdisjoint({"albumentationsx", "pylibjpeg-libjpeg", "credible"})
    for name in sorted(needs):
        metadata = distribution(name).metadata
        licence = " ".join(
            [metadata.get("License-Expression") or "", (metadata.get("License") or "")[:200]]
            + [line for line in metadata.get_all("Classifier") or [] if line.startswith("License")]
        )
        # LGPL is not GPL: what only links to it stays under its own licence.
        assert not re.search(r"(?<!L)(?<!Lesser )\bA?GPL|GNU (Affero )?General Public", licence), f"{name}: {licence}"


def test_no_image_weight_or_dicom_is_tracked():
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    binary = (".png", ".jpg", ".dcm", ".npz", ".npy", ".pth", ".pt", ".safetensors")
    shipped = ["weights/phantom/model.safetensors"]  # made from phantoms alone (tests/models/weights/test_shipped.py)
    assert [name for name in listed.stdout.splitlines() if name.endswith(binary)] == shipped
