"""From the grid to its runs."""

import pytest

from tests.studies.conftest import CONTENT, RESNET, VIT, study_of
from usvit.config import build_config, load_recipe
from usvit.errors import UsvitError
from usvit.studies.plan import make_plan
from usvit.studies.specification import load_study


def test_runs_go_seed_by_seed_so_that_the_table_fills_first():
    plan = make_plan(study_of(seeds=[0, 7]))
    assert [run.id for run in plan.runs] == [RESNET, VIT, RESNET[:-1] + "7", VIT[:-1] + "7"]
    assert len(plan.cells) == 2


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_run_of_a_papers_table_is_the_run_that_cv_would_make(number):
    """Same recipe, same settings: only the folds' seed is fixed, which is the run's own for seed 0."""
    for run in make_plan(load_study(f"gheflati2022_table{number}")).runs:
        own = {"data": {"dataset": run.cell.dataset}, "model": {"name": run.cell.model}, "seed": 0}
        alone = build_config(load_recipe(run.cell.recipe), own)
        assert run.config.split_seed == alone.split_seed == 0
        assert run.config.model_copy(update={"data": alone.data}) == alone


def test_table_iv_takes_each_family_by_its_own_recipe_and_stands_data_set_by_data_set():
    plan = make_plan(load_study("gheflati2022_table4"))
    assert [(cell.dataset, cell.model) for cell in plan.cells] == [
        (dataset, model) for dataset in ("b", "busi", "busi+b") for model in ("vit_b32", "resnet50")
    ]
    assert {(run.config.optim.name, run.cell.model) for run in plan.runs} == {("sgd", "vit_b32"), ("adam", "resnet50")}


def test_the_hybrid_that_table_ii_misprints_is_the_one_that_exists():
    rows = {row.printed_as: row.model for row in load_study("gheflati2022_table2").paper.rows}
    assert rows["R26+S/16"] == "r26_s32"
    with pytest.raises(UsvitError, match="use r26_s32"):
        make_plan(
            study_of(paper=None, grid=[{"datasets": "busi+b", "models": "r26_s16", "recipes": "gheflati2022_vit"}])
        )


def test_seeds_are_counted_on_from_the_files_first():
    assert make_plan(study_of(seeds=[4, 9]), n_seeds=3).seeds == (4, 5, 6)


def test_the_command_lines_settings_win_over_the_block_over_the_study_over_the_recipe():
    study = study_of(
        settings={"train": {"steps": 50, "batch_size": 2}, "optim": {"lr": 0.5}},
        grid=[{**CONTENT["grid"][0], "settings": {"train": {"batch_size": 3}, "optim": {"lr": 0.25}}}],
    )
    config = make_plan(study, overrides={"optim": {"lr": 0.125}}).runs[0].config
    assert (config.optim.lr, config.train.batch_size, config.train.steps) == (0.125, 3, 50)
    assert config.train.epochs is None, "the recipe's own length gives way"
    assert config.optim.name == "adamw", "from the recipe"


def test_another_data_set_takes_the_place_of_all():
    plan = make_plan(load_study("gheflati2022_table4"), dataset="phantom")
    assert {run.config.data.dataset for run in plan.runs} == {"phantom"} and len(plan.runs) == 2 * 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"models": ["vit_b23"]}, "Nearest: vit_b32"),
        ({"recipes": ["gheflati2022_vti"]}, "Nearest: gheflati2022_vit"),
        ({"datasets": ["bussi"]}, "Nearest: busi"),
        ({"settings": {"train": {"stepps": 3}}}, "Nearest: train.steps"),
        ({"settings": {"model": {"name": "vit_s32"}}}, "grid.models"),
        ({"settings": {"seed": 3}}, "--seeds"),
        ({"models": ["timm:test_vit", "timm:test_vit"]}, "twice"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is(changes, says):
    with pytest.raises(UsvitError, match=says):
        make_plan(study_of(paper=None, grid=[{**CONTENT["grid"][0], **changes}]))


def test_set_cannot_change_what_the_grid_says():
    with pytest.raises(UsvitError, match=r"--set cannot set data\.dataset"):
        make_plan(study_of(), overrides={"data": {"dataset": "busi"}})


def test_a_papers_row_needs_its_one_run():
    rows = [{**CONTENT["paper"]["rows"][0], "model": "timm:test_convnext"}]
    with pytest.raises(UsvitError, match="test_convnext has no run"):
        make_plan(study_of(paper={**CONTENT["paper"], "rows": rows}))
    twice = [{**CONTENT["grid"][0], "variant": name} for name in ("a", "b")]
    with pytest.raises(UsvitError, match="2 runs; name its recipe or variant"):
        make_plan(study_of(grid=twice))


def test_variants_tell_blocks_apart():
    blocks = [{**CONTENT["grid"][0], "variant": name, "settings": {"seed": None}} for name in ("a", "b")]
    plan = make_plan(study_of(paper=None, grid=[{**one, "settings": {}} for one in blocks]))
    assert [run.id for run in plan.runs] == [f"{name}-{which}" for which in "ab" for name in (RESNET, VIT)]
