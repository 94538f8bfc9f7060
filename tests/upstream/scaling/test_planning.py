"""Sweeps of shapes as studies: shapes, lengths, and what is refused."""

import pytest

import usvit
from usvit.errors import UsvitError
from usvit.models import count, find_model
from usvit.plain_yaml import parse_yaml
from usvit.upstream.scaling.shapes import NetworkShape, ShapeRule
from usvit.upstream.scaling.step_time import StepTime
from usvit.upstream.scaling.sweeps import star, star_values

TINY = {
    "center": (64, 4, 128), "widths": [16, 24, 40], "depths": [1, 2, 3], "mlps": [16, 32, 64], "head_dim": 8,
    "model__vit__patch": 8, "model__image_size": 32, "train__batch_size": 32,
}  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("usvit.upstream.scaling.step_time.measure_step_time", lambda *_: StepTime(0.01, 1e-10))


def test_a_star_sweep_is_a_study_that_can_be_run(tmp_path):
    plan = usvit.plan_shapes([1e11, 2e11, 4e11], out=tmp_path / "sweep.yaml", **TINY)
    assert len(plan.cells) == 3 * 9
    record = usvit.run_study(plan.path, dry_run=True).record
    rows = parse_yaml(plan.path.read_text(), "the study")["rows"]
    assert [row["name"] for row in rows] == [cell.name for cell in plan.cells]
    run = record.runs[0].config
    assert run["model"]["vit"] == {"width": 16, "depth": 4, "mlp": 128, "heads": 2, "patch": 8}
    assert run["train"]["steps"] == plan.cells[0].steps and run["train"]["batch_size"] == 32
    assert {column.figure for column in record.columns} >= {"width", "depth", "mlp", "gflops", "val_loss"}
    per_step = plan.cells[0].flops / plan.cells[0].steps
    assert plan.seconds == pytest.approx(sum(c.steps * 0.01 + c.flops * 1e-10 for c in plan.cells))
    # Six FLOPs for each MAC of the network that is built, without its head, for 32 images.
    spec = find_model("vit", run["model"]["vit"])
    assert per_step == 6 * 32 * (count(spec, 32, 1).macs - 16)


def test_steps_use_up_the_budget(tmp_path):
    plan = usvit.plan_shapes([1e11, 2e11, 4e11], out=tmp_path / "sweep.yaml", **TINY)
    for cell in plan.cells:
        assert cell.flops == pytest.approx(cell.budget, rel=0.5 / cell.steps)


def test_the_paper_centre_has_values_far_below_it():
    rule = ShapeRule(heads=16)
    centre = NetworkShape(1968, 40, 6144)
    values = star_values(centre, {}, rule)
    assert all(len(several) == 6 for several in values.values())
    assert values["depth"] == [7, 8, 10, 13, 16, 20] and values["mlp"][-1] == 3072
    assert all(one % 16 == 0 for one in values["width"]) and values["width"][-1] == 992
    shapes = [shape for _, shape in star(centre, values)]
    assert len(set(shapes)) == len(shapes) == 18
    for shape in shapes:
        assert sum(getattr(shape, name) != getattr(centre, name) for name in ("width", "depth", "mlp")) == 1


def test_the_sovit_shapes_need_no_rounding_and_cost_what_the_zoo_counts():
    for name in ("sovit_400m_14", "sovit_150m_14"):
        shape = find_model(name).shape
        rule = ShapeRule(name, (), 224, shape.heads)
        own = NetworkShape(shape.width, shape.depth, shape.mlp)
        assert rule.snap(shape.width, shape.depth, shape.mlp) == own
        assert rule.vit_shape(own) == shape


@pytest.mark.parametrize(
    ("given", "expected"),
    [((100, 3.4, 200), (128, 3, 200)), ((5, 0.2, 3), (64, 1, 3)), ((90, 1.5, 1001), (64, 2, 1000))],
)
def test_shapes_are_rounded_to_whole_heads(given, expected):
    assert ShapeRule().snap(*given) == NetworkShape(*expected)


def test_a_grid_sweep_crosses_all_values_at_the_smallest_budget(tmp_path):
    plan = usvit.plan_shapes(
        [1e11, 4e11], out=tmp_path / "sweep.yaml", sweep="both", **TINY,
        grid_values={"width": [16, 24], "depth": [1, 2], "mlp": [16, 32]},
    )  # fmt: skip
    grid = [cell for cell in plan.cells if cell.sweep == "grid"]
    assert len(grid) == 8 and {cell.budget for cell in grid} == {1e11}
    assert len([cell for cell in plan.cells if cell.sweep != "grid"]) == 18


def test_networks_with_too_few_steps_are_left_out_and_named(tmp_path):
    plan = usvit.plan_shapes([1e11, 4e11, 1e12], out=tmp_path / "sweep.yaml", min_steps=300, **TINY)
    assert plan.left_out and all(cell.steps < 300 for cell in plan.left_out)
    assert plan.left_out[0].name in plan.path.read_text()
    assert not {cell.name for cell in plan.left_out} & {cell.name for cell in plan.cells}


@pytest.mark.parametrize(
    ("budgets", "changes", "words"),
    [
        ([1e6], {}, ["1e+06 FLOPs", "no network", "100 steps", "Give budgets above"]),
        ([1e11], {"max_steps": 5, "min_steps": 1}, ["at most 5"]),
        ([], {}, ["at least one budget"]),
        ([-1.0], {}, ["above 0"]),
        ([1e11], {"center": (64, 4)}, ["centre", "1968,40,6144"]),
        ([1e11], {"widths": [16, 17, 18]}, ["only 1 value of the width", "needs 3"]),
        ([1e11], {"sweep": "stars"}, ["Unknown sweep 'stars'", "star"]),
        ([1e11], {"recipe": "fractal"}, ["fractals"]),
        ([1e11], {"model": "resnet50"}, ["resnet50", "plain ViT"]),
        ([1e11], {"optim__learning": 3}, ["optim.learning"]),
        ([1e11], {"train__steps": 3}, ["train.steps", "each training"]),
        ([1e11], {"model__vit__heads": 3}, ["model.vit.heads", "each training"]),
        ([1e11], {"depths": [1, 2, -3]}, ["at least 1", "-3 is not"]),
        ([1e11], {"model__image_size": 36}, ["36 pixels", "patch of 8"]),
        ([1e11], {"head_dim": 0}, ["channels of a head"]),
    ],
)
def test_a_sweep_that_cannot_be_made_is_refused_and_leaves_no_file(tmp_path, budgets, changes, words):
    with pytest.raises(UsvitError) as error:
        usvit.plan_shapes(budgets, out=tmp_path / "sweep.yaml", **{**TINY, **changes})
    assert not [word for word in words if word not in str(error.value)], error.value
    assert list(tmp_path.iterdir()) == []


def test_the_smallest_budget_that_is_advised_will_do(tmp_path):
    with pytest.raises(UsvitError) as error:
        usvit.plan_shapes([1e6], out=tmp_path / "sweep.yaml", sweep="grid", **TINY)
    advised = float(str(error.value).split("budgets above ")[1].split()[0])
    plan = usvit.plan_shapes([1.1 * advised], out=tmp_path / "sweep.yaml", sweep="grid", **TINY)
    assert [cell.shape for cell in plan.cells] == [NetworkShape(16, 1, 16)] and plan.cells[0].steps >= 100


def test_too_few_budgets_for_a_fit_are_warned_about(tmp_path):
    (warning,) = usvit.plan_shapes([1e11], out=tmp_path / "one.yaml", **TINY).warnings
    assert "1 budget, and a fit needs 3" in warning
    assert usvit.plan_shapes([1e11, 2e11, 4e11], out=tmp_path / "three.yaml", **TINY).warnings == ()


def test_a_sweep_that_a_cpu_cannot_train_is_estimated_for_a_gpu(tmp_path):
    plan = usvit.plan_shapes([1e20], out=tmp_path / "sweep.yaml", **TINY)
    assert "H200" in plan.where
    assert plan.seconds == pytest.approx(sum(cell.flops for cell in plan.cells) / (0.4 * 989e12))


def test_an_existing_file_is_kept(tmp_path):
    (tmp_path / "sweep.yaml").write_text("mine")
    with pytest.raises(UsvitError, match="exists"):
        usvit.plan_shapes([1e11], out=tmp_path / "sweep.yaml", **TINY)
    assert (tmp_path / "sweep.yaml").read_text() == "mine"
