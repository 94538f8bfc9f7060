"""From the grid to its runs."""

import pytest

from tests.upstream.studies.conftest import CHAIN, GRID, RESNET, VIT, study_of
from usvit.config import RunConfig, build_config, load_recipe
from usvit.errors import UsvitError
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.studies.plan import make_plan
from usvit.upstream.studies.specification import StudyConfig, load_study
from usvit.upstream.transfer_learning.finetune import cell_config


def test_runs_go_seed_by_seed_so_that_the_table_fills_first():
    plan = make_plan(study_of(seeds=[0, 7]))
    assert [run.id for run in plan.runs] == [RESNET, VIT, RESNET[:-1] + "7", VIT[:-1] + "7"]
    assert len(plan.rows) == 2


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_run_of_a_papers_table_is_the_run_that_cv_would_make(number):
    """Same recipe, same settings: only the folds' seed is fixed, which is the run's own for seed 0."""
    for run in make_plan(load_study(f"gheflati2022_table{number}")).runs:
        config = RunConfig.model_validate(run.config)
        own = {"data": {"dataset": config.data.dataset}, "model": {"name": config.model.name}, "seed": 0}
        alone = build_config(load_recipe(config.recipe), own)
        assert config.split_seed == alone.split_seed == 0
        assert config.model_copy(update={"data": alone.data}) == alone


def test_table_iv_takes_each_family_by_its_own_recipe_and_stands_data_set_by_data_set():
    plan = make_plan(load_study("gheflati2022_table4"))
    assert [(row.group, row.model) for row in plan.rows] == [
        (dataset, model) for dataset in ("B", "BUSI", "BUSI+B") for model in ("vit_b32", "resnet50")
    ]
    used = {(run.config["optim"]["name"], run.config["model"]["name"]) for run in plan.runs}
    assert used == {("sgd", "vit_b32"), ("adam", "resnet50")}


def test_the_hybrid_that_table_ii_misprints_is_the_one_that_exists():
    rows = {row.name: row.model for row in load_study("gheflati2022_table2").rows}
    assert rows["R26+S/16"] == "r26_s32"
    with pytest.raises(UsvitError, match="use r26_s32"):
        make_plan(study_of(rows=[], grid=[{**GRID, "datasets": "busi+b", "models": "r26_s16"}]))


def test_seeds_are_counted_on_from_the_files_first():
    assert make_plan(study_of(seeds=[4, 9]), n_seeds=3).seeds == (4, 5, 6)


def test_the_command_lines_settings_win_over_the_block_over_the_study_over_the_recipe():
    study = study_of(
        settings={"train": {"steps": 50, "batch_size": 2}, "optim": {"lr": 0.5}},
        rows=[],
        grid=[{**GRID, "settings": {"train": {"batch_size": 3}, "optim": {"lr": 0.25}}}],
    )
    config = RunConfig.model_validate(make_plan(study, overrides={"optim": {"lr": 0.125}}).runs[0].config)
    assert (config.optim.lr, config.train.batch_size, config.train.steps) == (0.125, 3, 50)
    assert config.train.epochs is None, "the recipe's own length gives way"
    assert config.optim.name == "adamw", "from the recipe"


def test_another_data_set_takes_the_place_of_all():
    plan = make_plan(load_study("gheflati2022_table4"), dataset="phantom")
    assert {run.config["data"]["dataset"] for run in plan.runs} == {"phantom"} and len(plan.runs) == 2 * 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"models": ["vit_b23"]}, "Nearest: vit_b32"),
        ({"recipes": ["gheflati2022_vti"]}, "Nearest: gheflati2022_vit"),
        ({"datasets": ["bussi"]}, "Nearest: busi"),
        ({"settings": {"train": {"stepps": 3}}}, "Nearest: train.steps"),
        ({"settings": {"model": {"name": "vit_s32"}}}, "grid.models"),
        ({"settings": {"model.name": "vit_s32"}}, "grid.models"),
        ({"settings": {"seed": 3}}, "--seeds"),
        ({"models": ["timm:test_vit", "timm:test_vit"]}, "twice"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is(changes, says):
    with pytest.raises(UsvitError, match=says):
        make_plan(study_of(rows=[], grid=[{**GRID, **changes}]))


def test_set_cannot_change_what_the_grid_says():
    with pytest.raises(UsvitError, match=r"--set cannot set data\.dataset"):
        make_plan(study_of(), overrides={"data": {"dataset": "busi"}})


def test_variants_tell_blocks_apart():
    blocks = [{**GRID, "variant": name} for name in ("a", "b")]
    plan = make_plan(study_of(rows=[], grid=blocks))
    assert [run.id for run in plan.runs] == [f"{name}-{which}" for which in "ab" for name in (RESNET, VIT)]
    assert [row.name for row in plan.rows[::2]] == ["timm:test_resnet, demo, a", "timm:test_resnet, demo, b"]


def test_steps_have_variants_too_and_networks_may_stand_side_by_side():
    joined = {"model": {"features": "last"}, "optim": {"name": "logistic"}}
    step = {"run": "cv", "dataset": "phantom", "recipe": "usvit_imagenet", "weights": "scratch"}
    two = {"a": {**step, "variant": "one"}, "b": {**step, "settings": joined}}
    rows = [{"name": "both", "model": "timm:test_resnet+efficientnet_lite0"}]
    study = {
        "name": "s",
        "title": "S",
        "steps": two,
        "rows": rows,
        "columns": {"accuracy": {"figure": "accuracy", "of": "a"}},
    }
    plan = make_plan(StudyConfig.model_validate(study))
    assert [run.id.endswith("-one") for run in plan.runs] == [True, False]
    (tiny, _) = make_plan(StudyConfig.model_validate(study), scale="tiny").runs
    assert tiny.config["model"]["name"] == "timm:test_resnet+timm:test_resnet"


def test_equal_settings_in_two_blocks_without_a_variant_are_refused():
    blocks = [GRID, {**GRID, "settings": {"train": {"steps": 3}}}]
    with pytest.raises(UsvitError, match=f"contains the run {RESNET} twice"):
        make_plan(study_of(rows=[], grid=blocks))


def test_runs_come_after_those_that_they_need_and_shared_runs_come_once():
    plan = make_plan(StudyConfig.model_validate(CHAIN))
    place = {run.id: number for number, run in enumerate(plan.runs)}
    assert all(place[needed] < place[run.id] for run in plan.runs for needed in run.needs)
    first, again, sgd = (row.runs[0] for row in plan.rows)
    assert again == {name: first[name] for name in ("train", "tuned", "knn")}, "equal runs are one run"
    assert sgd["train"] == first["train"] and sgd["few"] == first["few"]
    assert sgd["tuned"] != first["tuned"] and sgd["knn"] != first["knn"], "what builds on another run is another run"
    assert len(plan.runs) == 4 + 2
    assert plan.by_id[first["knn"]].needs == (first["tuned"],)
    assert plan.by_id[first["tuned"]].config["model"]["weights"] == f"${{{first['train']}}}"


def test_the_id_of_a_run_depends_on_its_settings_and_on_nothing_else():
    def ids(**changes):
        return {run.id for run in make_plan(StudyConfig.model_validate({**CHAIN, **changes})).runs}

    assert ids(name="other", title="Other", rows=CHAIN["rows"][::-1], notes=["new"]) == ids()
    assert not ids(settings={**CHAIN["settings"], "optim": {"weight_decay": 0.06}}) & ids(), "each run trains on it"


def test_a_step_with_a_seed_of_its_own_is_one_run_for_all_seeds():
    steps = {**CHAIN["steps"], "train": {**CHAIN["steps"]["train"], "seed": 5}}
    plan = make_plan(
        StudyConfig.model_validate({**CHAIN, "steps": steps, "rows": CHAIN["rows"][:1], "seeds": [0, 1, 2]})
    )
    runs = plan.rows[0].runs
    assert {runs[seed]["train"] for seed in (0, 1, 2)} == {runs[0]["train"]}
    assert len({runs[seed]["tuned"] for seed in (0, 1, 2)}) == 3 and len(plan.runs) == 1 + 3 * 3
    assert plan.by_id[runs[2]["train"]].config["seed"] == 5 and plan.by_id[runs[2]["knn"]].config["seed"] == 2


def test_a_size_that_is_set_is_another_run_than_the_size_of_the_weights():
    def knn(**settings):
        steps = {**CHAIN["steps"], "knn": {**CHAIN["steps"]["knn"], "settings": settings}}
        return make_plan(StudyConfig.model_validate({**CHAIN, "steps": steps})).rows[0].runs[0]["knn"]

    assert knn(model={"image_size": 224}) != knn(), "224 is the default, and the weights are of 384 pixels"


def test_settings_reach_the_runs_that_have_them():
    plan = make_plan(
        StudyConfig.model_validate({**CHAIN, "settings": {"draws": 3}}), overrides={"distill.kind": "none"}
    )
    runs = {run.kind: run.config for run in plan.runs}
    assert runs["transfer"]["draws"] == 3 and "draws" not in runs["pretrain"]


@pytest.mark.parametrize("scale", ["paper", "tiny"])
def test_settings_of_trainings_do_not_reach_the_measurement_of_a_network(scale):
    """The shape and the image size are those of the row; a head that is kept or new is a matter of the training."""
    steps = {"train": {"run": "pretrain", "recipe": "deit"}, "speed": {"run": "bench", "protocol": "deit"}}
    row = {"name": "one", "model": "deit_ti", "settings": {"model": {"head": "new", "vit": {"layer_scale": 0.1}}}}
    study = study_of(
        steps=steps,
        rows=[row],
        columns={"a": {"figure": "images_per_second", "of": "speed"}},
        settings={},
        tiny={"model": {"head": "new"}},
    )
    plan = make_plan(study, scale=scale, overrides={"model": {"head": "new"}})
    train, speed = (run.config["model"] for run in plan.runs)
    assert train["head"] == "new" and train["vit"]["layer_scale"] == speed["vit"]["layer_scale"] == 0.1
    assert list(speed) == ["vit"]


def chain(*, steps=None, **changes):
    content = {**CHAIN, **changes}
    return StudyConfig.model_validate(content if steps is None else {**content, "steps": {**CHAIN["steps"], **steps}})


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (
            {"train": {"run": "pretrain", "weights": "${knn}"}},
            "steps form a circle: knn needs tuned needs train needs knn",
        ),
        ({"train": {"run": "pretrain", "weights": "${train}"}}, "steps form a circle: train needs train"),
        ({"train": {"run": "pretrain", "weights": "${trian}"}}, "the step train needs ${trian}, which is not one of"),
        ({"train": {"run": "pretrain", "recipe": "deti"}}, "step train: Unknown recipe 'deti'. Nearest: deit"),
        ({"train": {"run": "pretrain", "recipe": "deit", "cell": "all"}}, "A step is one run"),
        ({"train": {"run": "pretrain", "how": "knn"}}, "A step of 'usvit pretrain' has no entry how"),
        ({"train": {"run": "pretrain", "settings": {"optim.lrr": 1}}}, "Nearest: optim.lr"),
        ({"few": {"run": "cv", "recipe": "demo", "dataset": "bussi"}}, "Nearest: busi"),
    ],
)
def test_a_step_that_cannot_be_made_is_refused_with_its_row(steps, says):
    with pytest.raises(UsvitError) as refused:
        make_plan(chain(steps=steps))
    assert says in str(refused.value) and "row 'DeiT-Ti'" in str(refused.value)


def with_rows(*changes):
    return chain(rows=[{**CHAIN["rows"][0], **change} for change in changes])


def columns(**columns):
    return chain(columns=columns, rows=[{key: CHAIN["rows"][0][key] for key in ("name", "model")}])


@pytest.mark.parametrize(
    ("study", "says"),
    [
        (with_rows({}, {}), "contains the row DeiT-Ti twice"),
        (with_rows({"steps": {"knnn": None}}), "removes the step knnn, which the study does not have"),
        (with_rows({"steps": {"knnn": {"how": "knn"}}}), "the new step knnn lacks 'run'"),
        (with_rows({"steps": {"knn": None}}), "no row has the run of the column knn"),
        (with_rows({"steps": {"knn": None}}, {"name": "b"}), "has a printed figure of the column knn, and no run"),
        (with_rows({"model": "vit_b23"}), "Nearest: vit_b32"),
        (columns(a={"figure": "auc.positive", "of": "knn"}), "Unknown figure of 'usvit transfer'"),
        (columns(a={"figure": "accuracy", "of": "nothing"}), "no row has the run of the column a (steps not"),
        (chain(settings={"train": {"stepps": 1}}), "Nearest: train.steps"),
        (chain(tiny={"train": {"stepps": 1}}), "It is set in tiny"),
        (chain(settings={"source": {"name": "imagenet"}}), "'source' of a step"),
    ],
)
def test_a_row_or_a_column_that_cannot_be_is_refused(study, says):
    with pytest.raises(UsvitError) as refused:
        make_plan(study)
    assert says in str(refused.value), refused.value


def test_a_study_of_too_many_rows_is_refused_before_they_are_made():
    with pytest.raises(UsvitError, match="1,000,000,000 seeds"):
        make_plan(chain(), n_seeds=10**9)


def test_an_unknown_scale_is_refused():
    with pytest.raises(UsvitError, match="Unknown scale 'small'"):
        make_plan(chain(), scale="small")


def test_tiny_runs_are_other_runs_on_generated_images():
    plan = make_plan(chain(), scale="tiny")
    assert {run.config["source"]["name"] for run in plan.runs} == {"fractals"}
    assert {run.config["train"]["steps"] for run in plan.runs if run.kind == "pretrain"} == {2}
    assert not {run.id for run in plan.runs} & {run.id for run in make_plan(chain()).runs}
    assert [row.runs[0].keys() for row in plan.rows] == [row.runs[0].keys() for row in make_plan(chain()).rows]


@pytest.mark.parametrize("scale", ["paper", "tiny"])
def test_the_cells_of_a_sweep_leave_to_the_study_what_it_sets(scale):
    """As in 'usvit transfer': otherwise every cell would keep its own length, at the tiny scale as well."""
    step = {"run": "transfer", "recipe": "augreg", "source": "pets", "model": "vit_ti16", "weights": "scratch"}
    length = {"train": {"steps": 70}, "optim": {"warmup_steps": 7}}
    study = study_of(steps={"fine": {**step, "settings": length}}, columns=["val_accuracy"], rows=[{"name": "one"}])
    config = TransferConfig.model_validate(make_plan(study, scale=scale).runs[0].config)
    assert len(config.cells) == {"paper": 3, "tiny": 2}[scale]  # of six: three rates with two lengths each
    for name, cell in config.cells.items():
        trained = cell_config(config, cell)
        assert trained.train.steps == {"paper": 70, "tiny": 2}[scale], name
        assert name.startswith(f"lr{trained.optim.lr:g}-")
