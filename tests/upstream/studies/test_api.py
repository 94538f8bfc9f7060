"""``usvit.run_study``; a whole study is made by ``test_execution`` and ``tests/upstream/cli/test_study.py``."""

import pytest

import usvit
from tests.upstream.studies.conftest import RESNET, VIT, write_study
from usvit.errors import UsvitError


def test_a_dry_run_gives_the_record_of_the_start_and_writes_nothing(tmp_path):
    outcome = usvit.run_study(
        write_study(tmp_path / "tiny.yaml"),
        out=tmp_path / "study",
        seeds=2,
        workers=0,
        dry_run=True,
        train__steps=3,
        overrides={"optim.name": "adam", "data": {"skip_bad": True}},
    )
    assert [run.id for run in outcome.record.runs] == [RESNET, VIT, f"{RESNET[:-1]}1", f"{VIT[:-1]}1"]
    assert outcome.record.changed == ["train.steps=3", "optim.name=adam", "data.skip_bad=true"]
    config = outcome.record.runs[0].config
    assert (config["train"]["steps"], config["optim"]["name"], config["workers"]) == (3, "adam", 0)
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("arguments", "says"), [({"engine": "spark"}, "Known: ray, sequential"), ({"model__name": "vgg16"}, "grid.models")]
)
def test_a_wrong_argument_is_refused(tmp_path, arguments, says):
    with pytest.raises(UsvitError, match=says):
        usvit.run_study(write_study(tmp_path / "tiny.yaml"), dry_run=True, **arguments)
