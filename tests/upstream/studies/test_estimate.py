"""The estimated time of a study."""

import pytest

from tests.upstream.studies.conftest import CHAIN
from usvit.models import count, find_model
from usvit.upstream.studies.estimate import BENCH_HOURS, SUSTAINED_FLOPS, _macs, _macs_of_vit, hours
from usvit.upstream.studies.plan import make_plan
from usvit.upstream.studies.specification import StudyConfig


@pytest.mark.parametrize("name", ["vit_ti16", "vit_s32", "vit_b18x2"])
def test_the_closed_form_of_a_vit_is_what_is_counted(name):
    spec = find_model(name)
    assert _macs_of_vit(spec.shape, 224) == pytest.approx(count(spec, 224).macs, rel=0.01)


def test_a_larger_image_costs_in_proportion_to_its_pixels():
    assert _macs("patchconvnet_s20", "{}", 448) == pytest.approx(4 * _macs("patchconvnet_s20", "{}", 224))


def one_run(**step):
    study = {"name": "one", "title": "One", "rows": [{"name": "a", "model": "deit_b"}], "steps": {"train": step}}
    return make_plan(StudyConfig.model_validate({**study, "columns": {"a": {"figure": "val_accuracy", "of": "train"}}}))


def test_a_pre_training_costs_six_flops_per_mac_and_image():
    """DeiT-B, 300 epochs of ImageNet-1k: 17.56 GMACs (counts.json)."""
    found = hours(one_run(run="pretrain", recipe="deit"))
    assert found == pytest.approx(6 * 17.58e9 * 300 * 1_281_167 / SUSTAINED_FLOPS / 3600, rel=0.01)


def test_a_teacher_adds_its_forward_pass_and_views_multiply():
    plain = hours(one_run(run="pretrain", recipe="deit"))
    teacher = {"kind": "soft", "teacher": "deit_b", "weights": "scratch"}
    assert hours(one_run(run="pretrain", recipe="deit", settings={"distill": teacher})) == pytest.approx(plain * 8 / 6)


def test_a_chain_is_the_sum_of_its_runs_and_takes_the_network_of_the_run_that_it_needs():
    plan = make_plan(StudyConfig.model_validate({**CHAIN, "rows": CHAIN["rows"][:1]}))
    macs = 1.2537e9  # DeiT-Ti, counts.json
    train = 6 * macs * 300 * 1_281_167
    tuned = 6 * macs * (384 / 224) ** 2 * 25 * 1_281_167
    probes = 2 * macs * 60_000 * ((384 / 224) ** 2 + 1)
    assert hours(plan) == pytest.approx((train + tuned + probes) / SUSTAINED_FLOPS / 3600, rel=0.01)


def test_a_measurement_of_speed_takes_a_minute():
    study = {"name": "one", "title": "One", "rows": [{"name": "a", "model": "deit_b"}]}
    steps = {"speed": {"run": "bench", "protocol": "deit"}}
    columns = {"a": {"figure": "images_per_second"}}
    assert hours(make_plan(StudyConfig.model_validate({**study, "steps": steps, "columns": columns}))) == BENCH_HOURS


@pytest.mark.parametrize(("size", "local"), [(96, 8 * (96 / 224) ** 2), (None, 8.0)])
def test_dino_trains_on_all_crops_and_asks_the_teacher_for_the_global_ones(size, local):
    views = {"count": 2, "local_count": 8, "local_size": size}
    train = {"steps": 5, "epochs": None, "batch_size": 10}
    found = hours(one_run(run="pretrain", recipe="dino", settings={"views": views, "train": train}))
    macs = _macs("deit_b", "{}", 224)
    expected = 50 * (3 * 2 * macs * (2 + local) + 2 * 2 * macs)
    assert found == pytest.approx(expected / SUSTAINED_FLOPS / 3600)
