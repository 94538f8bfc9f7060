"""Every kind of run has the experiment that the table of kinds names."""

import pytest

from usvit.config import build, build_config
from usvit.experiments import Experiment, make_experiment
from usvit.plugins import load
from usvit.records import run_kinds
from usvit.upstream.config.transfer import TransferConfig


@pytest.mark.parametrize("kind", ["cv", "train"])
def test_a_cross_validation_and_a_hold_out_are_told_apart(kind, tmp_path):
    made = make_experiment(kind, build_config(), out=tmp_path, command="usvit")
    assert (made.kind, made.out, made.command) == (kind, tmp_path, "usvit")


def test_a_transfer_of_several_weights_chooses_among_them():
    made = [
        make_experiment("transfer", build(TransferConfig, {"how": "knn", "upstream": upstream}))
        for upstream in ([], ["scratch", "hub"])
    ]
    assert [type(one).__name__ for one in made] == ["Transfer", "UpstreamSelection"]
    assert not any(one.model_named for one in made)


@pytest.mark.parametrize("kind", ["pretrain", "test"])
def test_the_kinds_of_upstream_work_name_their_experiments(kind):
    assert issubclass(load(run_kinds()[kind].experiment), Experiment)


def test_what_trains_nothing_has_no_experiment():
    assert {name for name, kind in run_kinds().items() if kind.experiment is None} == {"ensemble", "evaluation"}
