"""Predicted shapes: the minimum of the form, the paper's rule, and whether a trained shape wins."""

import json

import pytest

import usvit
from usvit.errors import UsvitError
from usvit.models import find_model
from usvit.upstream.scaling import example_sweep
from usvit.upstream.scaling.prediction import grown, neighbours
from usvit.upstream.scaling.shapes import NetworkShape, ShapeRule
from usvit.upstream.scaling.simulation import known_surface
from usvit.upstream.scaling.step_time import StepTime


@pytest.fixture(scope="module")
def fit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    (folder / "study.csv").write_text(example_sweep(0.0005))
    return usvit.fit_shapes(folder / "study.csv", draws=50).path


def test_the_known_optimum_is_predicted(fit):
    record = usvit.predict_shape(fit, 1e20, patch=14, heads=16).record
    best = dict(zip(("width", "depth", "mlp"), known_surface().optimum(1e11), strict=True))
    for name, value in record.ideal.items():
        assert value.value == pytest.approx(best[name], rel=0.05)
        assert value.ci95[0] <= value.value <= value.ci95[1] and value.inside
    assert record.chosen.shape["width"] % 16 == 0 and record.chosen.shape["mlp"] % 8 == 0
    known = float(known_surface().loss([900, 22, 2430], 1e11))
    assert record.chosen.predicted_loss.value == pytest.approx(known, rel=0.01)
    assert [one.name for one in record.others] == ["sovit_400m_14", "sovit_150m_14"]


def test_the_chosen_shape_can_be_built_and_costs_what_is_said(fit):
    record = usvit.predict_shape(fit, 1e20, patch=14, heads=16).record
    spec = find_model("vit", {**record.chosen.shape, "heads": 16, "patch": 14})
    assert spec.shape is not None and spec.shape.width % 16 == 0
    assert record.chosen.images == pytest.approx(1e20 / 6 / record.chosen.macs)


def test_a_start_is_scaled_by_a_third_of_each_exponent(fit):
    """Section 3: compute grows by tau in three increments of tau^(1/3), each for one dimension."""
    record = usvit.predict_shape(fit, 1e23, start=(608, 10, 928), start_flops=1e20, heads=16).record
    assert record.method == "start"
    for name, begun, exponent in (("width", 608, 0.22), ("depth", 10, 0.45), ("mlp", 928, 0.60)):
        assert record.ideal[name].value == pytest.approx(begun * 1000 ** (exponent / 3), rel=0.08)


def test_the_printed_shapes_follow_from_the_printed_exponents_roughly():
    """From SoViT-150m/14 to SoViT-400m/14: compute of ViT-B/14 on 4 billion images to ViT-g/14 on 16 billion.

    The width agrees within 2 %, depth and MLP width within 20 %: the paper rounds, and starts from another shape.
    """
    small, large = (find_model(name).shape for name in ("sovit_150m_14", "sovit_400m_14"))
    macs = {name: ShapeRule(name, vit, 224).cost(shape).macs for name, vit, shape in (
        ("vit_b16", (("patch", 14),), NetworkShape(768, 12, 3072)),
        ("vit_g14", (), NetworkShape(1408, 40, 6144)),
    )}  # fmt: skip
    factor = 4 * macs["vit_g14"] / macs["vit_b16"]
    assert 40 < factor < 60
    for name, exponent, tolerance in (("width", 0.22, 0.02), ("depth", 0.45, 0.20), ("mlp", 0.60, 0.20)):
        predicted = getattr(small, name) * grown(exponent, factor, 3)
        assert predicted == pytest.approx(getattr(large, name), rel=tolerance)


def test_parameters_grow_more_slowly_than_compute():
    """Section 4.1 says so. It holds for a third of each exponent, and would not hold for whole exponents."""
    shape = find_model("sovit_400m_14").shape

    def growth(dimensions):
        width, depth, mlp = (grown(exponent, 10, dimensions) for exponent in (0.22, 0.45, 0.60))
        attention, hidden = 4 * shape.width**2, 2 * shape.width * shape.mlp
        return depth * (attention * width**2 + hidden * width * mlp) / (attention + hidden)

    assert growth(3) == pytest.approx(2.4, abs=0.05)
    assert growth(1) > 10


def test_outside_of_the_sweep_it_says_so(fit):
    said = " ".join(usvit.predict_shape(fit, 3e22, heads=16).record.warnings)
    assert "far outside the sweep's" in said and "Outside the values of the sweep" in said


def test_a_dimension_can_be_held(fit):
    record = usvit.predict_shape(fit, 1e20, fixed={"mlp": 1536}, heads=16).record
    assert record.chosen.shape["mlp"] == 1536 and record.ideal["mlp"].fixed
    assert len(record.neighbours) == 4


def test_a_fit_that_was_changed_is_refused(fit, tmp_path):
    content = json.loads(fit.read_text())
    (tmp_path / "scaling.json").write_text(json.dumps({**content, "parameters": content["parameters"][1:]}))
    with pytest.raises(UsvitError, match="14 parameters for 3 dimensions"):
        usvit.predict_shape(tmp_path, 1e20)


def test_the_network_comes_from_the_sweep_or_from_the_options_and_not_from_both(fit, study, tmp_path):
    with pytest.raises(UsvitError, match="leave out --patch and --heads"):
        usvit.predict_shape(fit, 1e20, like=study, patch=8, heads=16, out=tmp_path)


def test_neighbours_differ_in_one_dimension_each():
    chosen = NetworkShape(64, 1, 64)
    found = neighbours(chosen, ShapeRule(), {})
    assert [name for name, _ in found] == ["more width", "more depth", "less MLP width", "more MLP width"]
    for _, one in found:
        assert sum(getattr(one, name) != getattr(chosen, name) for name in ("width", "depth", "mlp")) == 1


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setattr("usvit.upstream.scaling.step_time.measure_step_time", lambda *_: StepTime(0.01, 1e-10))
    plan = usvit.plan_shapes([1e19, 1e20, 1e21], out=tmp_path / "sweep.yaml", heads=16, model__vit__patch=8)
    return plan.path


def test_the_study_of_the_neighbours_has_the_settings_of_the_sweep(fit, study, tmp_path):
    found = usvit.predict_shape(fit, 1e20, study=tmp_path / "near.yaml", like=study)
    record = usvit.run_study(found.study, dry_run=True).record
    assert len(record.runs) == 7
    vit = record.runs[0].config["model"]["vit"]
    assert vit == {**found.record.chosen.shape, "heads": 16, "patch": 8}
    assert found.study.read_text() == (tmp_path / "near.yaml").read_text()


@pytest.mark.parametrize(("ours", "words"), [(0.5, "wins"), (0.9, "does not win")])
def test_the_page_says_whether_the_trained_shape_wins(fit, tmp_path, ours, words):
    record = usvit.predict_shape(fit, 1e20, heads=16).record
    shapes = [(record.chosen.shape, ours), *((one.shape, 0.7) for one in record.neighbours)]
    lines = [",".join([*(str(shape[name]) for name in ("width", "depth", "mlp")), str(loss)]) for shape, loss in shapes]
    (tmp_path / "near.csv").write_text("width,depth,mlp,loss\n" + "\n".join(lines) + "\n")
    found = usvit.predict_shape(fit, 1e20, heads=16, trained=tmp_path / "near.csv", out=tmp_path)
    assert words in found.record.verdict and words in found.page.read_text()
    assert json.loads(found.path.read_text())["chosen"]["measured_loss"] == ours


def test_only_trainings_with_this_compute_are_judged(fit, tmp_path):
    """A table of several budgets: the shape loses at 1e20 FLOPs, whatever it had at 1e21."""
    record = usvit.predict_shape(fit, 1e20, heads=16, out=tmp_path).record
    lines = ["width,depth,mlp,gflops,loss"]
    for shape, loss, elsewhere in [(record.chosen.shape, 0.8, 0.1), (record.neighbours[0].shape, 0.7, 0.9)]:
        shown = ",".join(str(shape[name]) for name in ("width", "depth", "mlp"))
        lines += [f"{shown},1.01e11,{loss}", f"{shown},1e12,{elsewhere}"]
    (tmp_path / "near.csv").write_text("\n".join(lines) + "\n")
    found = usvit.predict_shape(fit, 1e20, heads=16, trained=tmp_path / "near.csv", out=tmp_path)
    assert "does not win: its loss is 0.8000" in found.record.verdict and "trained once" in found.record.verdict
    with pytest.raises(UsvitError, match="within 5 % of 3e\\+20"):
        usvit.predict_shape(fit, 3e20, heads=16, trained=tmp_path / "near.csv", out=tmp_path)


def test_the_compute_is_divided_among_the_dimensions_that_are_not_held(fit, tmp_path):
    asked = {"start": (608, 10, 928), "start_flops": 1e19, "fixed": {"mlp": 1000}, "heads": 16, "out": tmp_path}
    record = usvit.predict_shape(fit, 1e21, **asked).record
    for name, begun, exponent in (("width", 608, 0.22), ("depth", 10, 0.45)):
        assert record.ideal[name].value == pytest.approx(begun * 100 ** (exponent / 2), rel=0.08)


def test_a_scaled_start_that_the_form_would_change_is_warned_about(fit, tmp_path):
    asked = {"start": (608, 10, 928), "start_flops": 1e20, "heads": 16, "out": tmp_path}
    said = usvit.predict_shape(fit, 9e20, **asked).record.warnings
    assert any("The fitted form predicts a lower loss for more width" in one for one in said)


def test_a_shape_that_was_not_trained_has_no_verdict(fit, tmp_path):
    (tmp_path / "near.csv").write_text("width,depth,mlp,loss\n1,1,1,0.5\n")
    found = usvit.predict_shape(fit, 1e20, heads=16, trained=tmp_path / "near.csv", out=tmp_path)
    assert "was not trained" in found.record.verdict


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"flops": -1}, "above 0"),
        ({"flops": 1e27}, "can be trained"),
        ({"start": (1, 2, 3)}, "together"),
        ({"start": (1, 2), "start_flops": 1e18}, "The start has"),
        ({"fixed": {"heads": 3}}, "Unknown dimension 'heads'"),
        ({"fixed": {"mlp": -3}}, "above 0"),
        ({"study": "x.yaml"}, "--like"),
        ({"like": "absent.yaml"}, "absent.yaml cannot be read"),
        ({"head_dim": 0}, "channels of a head are at least 1"),
        ({"patch": 15}, "not a multiple of the patch of 15"),
        ({"fit": "absent.json"}, "usvit shape fit"),
    ],
)
def test_wrong_arguments_are_refused(fit, changes, words):
    with pytest.raises(UsvitError, match=words):
        usvit.predict_shape(**{"fit": fit, "flops": 1e20, **changes})


def test_a_shape_that_the_data_do_not_identify_is_not_predicted(tmp_path):
    (tmp_path / "study.csv").write_text(example_sweep(0.2))
    path = usvit.fit_shapes(tmp_path / "study.csv", draws=50).path
    with pytest.raises(UsvitError, match="Nothing is predicted"):
        usvit.predict_shape(path, 1e20)
    assert not (path.parent / "shape.json").exists()
