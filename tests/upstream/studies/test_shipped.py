"""The shipped studies: every printed table of the papers can be planned, and some of each paper run end to end."""

import functools
import json

import pytest

import usvit
from usvit.models import find_model
from usvit.models.build import build_model
from usvit.models.weights import Weights
from usvit.resources import configs_dir
from usvit.upstream.studies import estimate
from usvit.upstream.studies.plan import make_plan
from usvit.upstream.studies.specification import load_study, study_names
from usvit.upstream.studies.state import _in_percent

PAPERS = {
    "alabdulmohsin2023",
    "dosovitskiy2021",
    "gheflati2022",
    "steiner2022",
    "touvron2022_thesis",
    "touvron2022_three_things",
}
SAMPLE = (
    "alabdulmohsin2023_figure6",
    "busi_by_image",
    "dosovitskiy2021_figure9",
    "steiner2022_table6",
    "touvron2022_thesis_table4_4",
    "touvron2022_thesis_table6_12",
    "touvron2022_three_things_table2",
)
"""Studies that are run at the tiny scale in the tests; ``usvit study all --scale tiny`` runs all of them."""


@pytest.mark.slow
@pytest.mark.parametrize("name", study_names())
def test_every_study_can_be_planned_at_both_scales(name, monkeypatch):
    study = load_study(name)
    paper, tiny = make_plan(study), make_plan(study, scale="tiny")
    monkeypatch.setattr(estimate, "count", not_counted)
    estimate.hours(paper)
    assert [row.name for row in paper.rows] == [row.name for row in tiny.rows]
    of_paper = study.paper is not None and study.paper.key in PAPERS and name.startswith(f"{study.paper.key}_")
    assert of_paper or (study.paper is None and name.startswith("busi_"))
    for run in tiny.runs:
        if run.kind in ("cv", "train", "pretrain"):
            model = run.config["model"]
            vit = {key: value for key, value in model["vit"].items() if value is not None}
            for one in model["name"].split("+"):
                takes_its_images(one, json.dumps(vit), model["image_size"])


def not_counted(spec, image_size):
    pytest.fail(
        f"add {spec.name} to OUTSIDE_THE_ZOO in usvit/models/complexity.py: 'usvit study list --hours' would build it"
    )


@functools.cache
def takes_its_images(name, vit, image_size):
    """Build a tiny network, which tries it on an image; several studies have the same ones."""
    build_model(find_model(name, json.loads(vit)), Weights("scratch"), n_classes=4, image_size=image_size)


@pytest.mark.parametrize("name", [name for name in study_names() if name.startswith("gheflati2022")])
def test_small_networks_stay_apart_and_the_paper_s_division_of_images_is_offered(name):
    study = load_study(name)
    paper, tiny = (make_plan(study, scale=scale) for scale in ("paper", "tiny"))
    names, small = ({run.config["model"]["name"] for run in plan.runs} for plan in (paper, tiny))
    assert len(small) == len(names)  # four CNNs stay four runs
    offers = (f"usvit study {name} --set split.unit=image", "'usvit study gheflati2022_by_image'")
    assert name == "gheflati2022_by_image" or any(offer in note for note in study.notes for offer in offers)


def test_both_divisions_of_gheflati_s_images_stand_in_one_table_in_one_unit():
    plan = make_plan(load_study("gheflati2022_by_image"))
    units = {run.config["split"]["unit"] for run in plan.runs}
    assert len(plan.runs) == 18 and units == {"group", "image"}
    kept = {run.id for name in ("table1", "table2") for run in make_plan(load_study(f"gheflati2022_{name}")).runs}
    assert kept == {run.id for run in plan.runs if run.config["split"]["unit"] == "group"}  # made once
    assert _in_percent(plan, "accuracy") and _in_percent(plan, "accuracy_patients") and _in_percent(plan, "gap")
    assert not _in_percent(plan, "auc_patients")


@pytest.mark.slow
@pytest.mark.parametrize("name", study_names())
def test_every_study_states_its_paper_and_how_it_was_measured_or_where_ours_is(name):
    study = load_study(name)
    text = (configs_dir() / "studies" / f"{name}.yaml").read_text()
    assert study.name == name
    if study.paper is None:
        assert "There is no paper." in text and "docs/explanation/transfer-on-busi.md" in text
    else:
        assert study.paper.source and study.paper.table and study.paper.protocol
    assert "TODO" not in text
    assert f"#   usvit study {name}" in text


def test_the_list_names_every_study_of_a_paper():
    for paper in PAPERS:
        found = usvit.list_studies(paper)
        assert [one.name for one in found] == [name for name in study_names() if name.startswith(paper)]
        assert all(one.paper == paper and one.n_rows >= 1 for one in found)


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")  # of the runs; that of the study is made
@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_the_studies_runs_end_to_end_at_the_tiny_scale(name, tmp_path):
    outcome = usvit.run_study(name, scale="tiny", out=tmp_path / "study", cpus=1, device="cpu")
    assert outcome.failed == [] and {run.state for run in outcome.record.runs} == {"finished"}
    figures = [figure for row in outcome.record.table for figure in row.figures.values()]
    assert sum(figure.value is not None for figure in figures) > len(figures) / 2
    assert "Tiny networks on generated images" in outcome.page.read_text()
