"""Imports follow the layers of the architecture, and nothing is shipped that must not be."""

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
from usvit.kit import forbidden_licence

PACKAGE = REPOSITORY / "usvit"

PACKAGES = {
    "upstream": "pre-training, sources, transfer, tests of classifiers, speed, shapes, studies",
    "desktop": "a start without a shell: a page that runs the steps of a clinician",
    "reviewing": "cases read in a browser: studies, their server and its page, answers as tables",
    "node": "a DICOM service: receives, scores, sends back, and is watched",
    "cli": "parses options, calls one public function, prints",
    "experiments": "cross-validation, hold-out and ensembles; the run directory",
    "retesting": "test-retest: repeats in the predictions, controlled changes of test images",
    "scoring": "scores files and DICOM: discovery, readers, models, journal, tables, DICOM out",
    "monitoring": "a model in use: alarms, inventory, acceptance test, verdict",
    "planning": "sample sizes of studies: validation, accuracy, comparison",
    "exporting": "safetensors, ONNX and MONAI bundles, checked against PyTorch",
    "publishing": "models that are passed on: their files, signatures, the hub and other places",
    "explaining": "attention and saliency, held against lesion masks",
    "kit": "usvit on machines without network: kits, their SBOM and their installer",
    "reports": "records in, pages out",
    "documents": "sections, tables and figures of a page; HTML, Markdown, LaTeX, terminal",
    "training": "the trainer, tasks, optimizers, checkpoints, several processes",
    "evaluation": "from predictions and runs to the records of metrics",
    "models": "zoo, architectures, weights, adaptation, OOD",
    "data": "files, data sets, splits, near-duplicates, transforms, loading, phantom, audit",
    "metrics": "statistics on arrays, with intervals that count groups",
    "config": "the one schema of settings",
    "records": "every file that is written or read",
}
"""Packages below ``usvit`` and what each is for."""

LAYERS = [
    {"__main__"},
    {"desktop"},
    {"upstream", "node", "reviewing"},
    {"cli"},
    {"experiments", "monitoring"},
    {"scoring", "retesting"},
    {"explaining", "planning", "installation", "kit", "publishing"},
    {"exporting"},
    {"reports"},
    {"documents"},
    {"training"},
    {"evaluation"},
    {"models"},
    {"data"},
    {"progress", "cluster", "metrics", "threads"},
    {"records", "pseudonyms"},
    {"config"},
    {"plain_yaml", "estimate_text"},
    {"resources", "seeding", "files", "limited", "logging", "machine_load", "web", "estimate", "figure_table"},
    {"terminal", "markup", "arguments", "lazy_names", "representation", "processes", "wording", "plugins"},
    {"errors", "plain_data"},
]
"""Packages and modules by layer, top layer first; each imports only from itself and from layers below."""

DATA_LAYERS = [
    {"audit"},
    {"loading"},
    {"datasets"},
    {"transforms", "splits"},
    {"near_duplicates", "phantom"},
    {"burned_in"},
    {"io"},
]
"""The same inside ``usvit.data``."""

INTERFACES = sorted(
    path.parent
    for path in PACKAGE.rglob("__init__.py")
    if re.search("^ *from [.]", path.read_text(), flags=re.M)
    and path.parent.name not in ("usvit", "data", "metrics")  # metrics is a library of statistics, one file for each
)
"""Packages with a public interface, the only way to import from them; those of ``data`` have one each."""


def package_of(path):
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


def packages_around(module):
    """Return the packages in which a module is, which Python imports before it."""
    parts = module.split(".")
    return {".".join(parts[:n]) for n in range(1, len(parts))}


def files_imported():
    """Module -> the modules of usvit that its file imports, wherever in the file, and the packages in which they are.

    The packages in which the module itself is are left out, since their import has begun before its own.
    """
    modules = {module_of(path): path for path in PACKAGE.rglob("*.py")}
    imported = {}
    for module, path in modules.items():
        found = set()
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom):
                above = f"{module}." if node.level else ""  # only __init__ files have relative imports, of one dot
                name = f"{above}{node.module}" if node.module else module
                found |= ({f"{name}.{alias.name}" for alias in node.names} & modules.keys()) or {name}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        found |= {package for name in found for package in packages_around(name)}
        imported[module] = (found & modules.keys()) - packages_around(module) - {module}
    return imported


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_package_imports_only_from_layers_below(path):
    layer = {package: number for number, packages in enumerate(LAYERS) for package in packages}
    inside = {f"data.{package}": number for number, packages in enumerate(DATA_LAYERS) for package in packages}
    if path == PACKAGE / "__init__.py":
        return
    own = path.relative_to(PACKAGE).parts
    for module in imports_of(path):
        parts = module.split(".")
        if parts[0] != "usvit" or len(parts) < 2:
            continue
        if parts[1] != package_of(path):
            assert layer[parts[1]] > layer[package_of(path)], f"{path} imports {module}"
        elif parts[1] == "data" and len(parts) > 2 and len(own) > 2 and parts[2] != own[1]:
            assert inside[f"data.{parts[2]}"] > inside[f"data.{own[1]}"], f"{path} imports {module}"


PRODUCTS = ("upstream", "node")
"""Packages that register themselves by ``usvit.plugins``, as a third party's package does."""


def test_the_core_does_not_import_the_products():
    """Only the lazy names of ``usvit/__init__.pyi`` lead from the core to them."""
    for path in FILES:
        if package_of(path) not in PRODUCTS:
            found = [module for module in imports_of(path) if module.split(".")[:2][-1] in PRODUCTS]
            assert [module for module in found if module.startswith("usvit.")] == [], path


def test_the_products_do_not_import_each_other():
    for path in FILES:
        own = package_of(path)
        others = tuple(f"usvit.{product}" for product in PRODUCTS if product != own)
        if own in PRODUCTS:
            assert [module for module in imports_of(path) if module.startswith(others)] == [], path


@pytest.mark.slow
def test_no_file_takes_part_in_an_import_circle():
    graph = nx.DiGraph()
    for module, imported in files_imported().items():
        graph.add_edges_from((module, other) for other in imported)
    assert [sorted(one) for one in nx.strongly_connected_components(graph) if len(one) > 1] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_package_is_imported_only_by_its_public_interface(path):
    for folder in INTERFACES:
        interface = module_of(folder / "__init__.py")
        if folder in path.parents:
            continue
        inner = [module for module in imports_of(path) if module.startswith(f"{interface}.")]
        assert inner == [], f"{path} imports {inner} past the public interface {interface}"


def test_only_the_whole_package_has_a_stub():
    """Other packages list their names in their ``__init__.py`` (``usvit.lazy_names``)."""
    assert list(PACKAGE.rglob("*.pyi")) == [PACKAGE / "__init__.pyi"]


@pytest.mark.slow
def test_no_class_name_means_two_things():
    named = Counter(
        node.name for path in PACKAGE.rglob("*.py") for node in nodes_of(path) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in named.items() if count > 1] == []


@pytest.mark.slow
def test_the_page_of_the_architecture_shows_the_packages_as_they_are():
    page = REPOSITORY / "docs" / "explanation" / "architecture.md"
    start, end = "<!-- packages: drawn by the test -->", "<!-- end of packages -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(start)
    _, _, after = rest.partition(end)
    fresh = f"{before}{start}\n{drawing()}{end}{after}"
    if os.environ.get("USVIT_RENEW"):
        page.write_text(fresh, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == fresh, (
        "the packages have changed: USVIT_RENEW=1 python -m pytest tests/test_architecture.py -k architecture"
    )


def drawing():
    """Return the packages by layer as a Mermaid diagram, with an arrow from each package to those that it imports."""
    arrows = Counter()
    for module, imported in files_imported().items():
        package = module.split(".")[1] if "." in module else ""
        arrows.update(
            (package, other.split(".")[1]) for other in imported if "." in other and other.split(".")[1] != package
        )
    lines = ["```mermaid", "flowchart TD"]
    for number, packages in enumerate(LAYERS):
        shown = [package for package in PACKAGES if package in packages]
        if shown:
            lines.append(f'  subgraph layer{number}[" "]')
            lines += [f'    {package}["<b>{package}</b><br>{PACKAGES[package]}"]' for package in shown]
            lines.append("  end")
    # Only what no longer way implies, so that the picture can be read.
    graph = nx.DiGraph((a, b) for a, b in arrows if a in PACKAGES and b in PACKAGES)
    lines += [f"  {a} --> {b}" for a, b in sorted(nx.transitive_reduction(graph).edges)]
    lines.append("```")
    return "\n".join(lines) + "\n"


@pytest.mark.slow
def test_packages_without_networks_do_not_import_torch():
    for package in ("metrics", "evaluation", "reports", "cli"):
        for path in (PACKAGE / package).rglob("*.py"):
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
    assert {"torch", "timm", "braceexpand", "tensorboardx", "protobuf", "fsspec"} <= needs
    assert needs.isdisjoint({"albumentationsx", "pylibjpeg-libjpeg", "credible"})
    for name in sorted(needs):
        assert forbidden_licence(distribution(name).metadata) is None, name


def test_no_image_weight_or_dicom_is_tracked():
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    binary = (".png", ".jpg", ".dcm", ".npz", ".npy", ".pth", ".pt", ".safetensors")
    shipped = [  # pictures of the page with phantoms; weights made from phantoms (tests/models/weights/test_shipped.py)
        *(f"docs/tutorial/reader-study-{name}.png" for name in ("aided", "host", "unaided")),
        "weights/phantom/model.safetensors",
    ]
    assert [name for name in listed.stdout.splitlines() if name.endswith(binary)] == shipped
