"""Recipes of upstream training against the tables of their sources, and their first steps."""

import functools
import math
import re
from itertools import product

import pytest
import timm

from tests.conftest import REPOSITORY
from tests.upstream.config.recipe_tables import (
    ABLATION,
    CAIT_ABLATION,
    DEIT3_ABLATION,
    DEIT3_I21K_ABLATION,
    DROP_PATH,
    OTHER_SIZES,
    TABLES,
    VIT_POSITIONS,
    VIT_SHAPES,
)
from usvit.config import build, nested, parse_overrides, recipe_names
from usvit.resources import configs_dir
from usvit.training.optimizers import learning_rate, resolve
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.config.sweep import cells, read_recipe, settings_for

NAMES = recipe_names("pretrain")
READ = {name: read_recipe(name) for name in NAMES}
IMAGENET = 1_281_167


def config_of(name, model=None, *layers):
    return build(PretrainConfig, settings_for(READ[name], model), *layers)


def value(config, key):
    for part in key.split("."):
        config = getattr(config, part)
    return config


def test_every_recipe_has_its_table():
    assert sorted(TABLES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_holds_what_its_source_prints(name):
    config = config_of(name)
    assert {key: value(config, key) for key in TABLES[name]} == TABLES[name]


@pytest.mark.parametrize("name", NAMES)
def test_every_size_and_cell_is_valid_and_a_network_of_the_zoo(name):
    from usvit.models.zoo import find_model

    recipe = READ[name]
    assert recipe.model in recipe.sizes
    for model in recipe.sizes:
        for overrides in (cells(recipe) or {"": {}}).values():
            config = build(PretrainConfig, settings_for(recipe, model), overrides)
            assert config.model.name == model and config.recipe == name
        find_model(model, config.model.vit.model_dump(exclude_none=True))


@pytest.mark.parametrize("name", NAMES)
def test_the_header_names_source_command_and_result(name):
    text = (configs_dir() / "pretrain" / f"{name}.yaml").read_text()
    header = text.split("\n\n")[0]
    assert all(line.startswith("#") for line in header.splitlines())
    assert f"usvit pretrain --recipe {name}" in header
    first = header.splitlines()[0]
    assert re.search(r"(19|20)\d\d|^# Ours|^# MAE", first), first
    assert re.search(r"\d %|Expected", header)


@pytest.mark.parametrize("name", DROP_PATH)
def test_stochastic_depth_by_size(name):
    assert {model: config_of(name, model).model.drop_path for model in DROP_PATH[name]} == DROP_PATH[name]


@pytest.mark.parametrize(("name", "model", "key"), OTHER_SIZES)
def test_what_else_differs_by_size(name, model, key):
    assert value(config_of(name, model), key) == OTHER_SIZES[name, model, key]


def test_the_path_from_deit_s_to_cait_has_its_cells():
    assert list(cells(READ["cait_ablation"])) == list(CAIT_ABLATION)
    plain = config_of("cait_ablation").model_dump()
    for name, overrides in cells(READ["cait_ablation"]).items():
        expected = build(PretrainConfig, plain, nested(CAIT_ABLATION[name]))
        assert config_of("cait_ablation", None, overrides).model_dump() == expected.model_dump(), name


@pytest.mark.parametrize("name", ["augreg_i1k", "augreg_i21k"])
def test_augreg_has_its_28_cells(name):
    """Steiner et al. 2022, section 3.3."""
    augmentation = {"none": (0, 0, 0), "light1": (2, 0, 0), "light2": (2, 10, 0.2), "medium1": (2, 15, 0.2),
                    "medium2": (2, 15, 0.5), "strong1": (2, 20, 0.5), "strong2": (2, 20, 0.8)}  # fmt: skip
    expected = {
        f"{way}-{reg}-wd{decay}": (*lma, rate, rate, decay)
        for way, lma in augmentation.items()
        for reg, rate in (("plain", 0.0), ("reg", 0.1))
        for decay in (0.1, 0.03)
    }
    found = {}
    for cell, overrides in cells(READ[name]).items():
        config = config_of(name, None, overrides)
        views = config.views
        layers, magnitude = (views.layers, views.magnitude) if views.policy == "randaugment" else (0, 0)
        regularised = (config.model.dropout, config.model.drop_path)
        found[cell] = (layers, magnitude, config.mix.mixup, *regularised, config.optim.weight_decay)
    assert found == expected and len(found) == 28


@pytest.mark.parametrize(
    ("recipe", "table"),
    [
        ("deit_ablation", ABLATION),  # thesis, Tables 3.8, 3.3 and 3.21
        ("deit3_ablation", DEIT3_ABLATION),  # thesis, Tables 6.2, 6.3 and 6.4
        ("deit3_i21k_ablation", DEIT3_I21K_ABLATION),  # thesis, Table 6.5
    ],
)
def test_ablations_change_what_their_tables_change(recipe, table):
    assert list(cells(READ[recipe])) == list(table)
    for name, overrides in cells(READ[recipe]).items():
        config = config_of(recipe, None, overrides)
        expected = TABLES[recipe] | table[name]
        assert {key: value(config, key) for key in expected} == expected, name


@pytest.mark.parametrize(("recipe", "of"), [("deit3_ablation", "deit3_i1k"), ("deit3_i21k_ablation", "deit3_i21k")])
def test_the_ablations_of_deit3_start_from_its_training(recipe, of):
    """The networks are the same, too: the shape of vit_b16 with the two parts is that of deit3_b16."""
    from usvit.models.zoo import find_model

    ours, theirs = config_of(recipe, "vit_b16"), config_of(of, "deit3_b16")
    parts = ("source", "views", "mix", "loss", "optim", "train", "distill", "seed")
    assert all(getattr(ours, part) == getattr(theirs, part) for part in parts)
    assert ours.model.drop_path == theirs.model.drop_path
    assert ours.model.drop_path_schedule == theirs.model.drop_path_schedule
    shapes = [find_model(c.model.name, c.model.vit.model_dump(exclude_none=True)).shape for c in (ours, theirs)]
    assert shapes[0] == shapes[1]
    for cell, overrides in cells(READ[recipe]).items():
        vit = config_of(recipe, "vit_b16", overrides).model.vit
        scale = find_model("vit_b16", vit.model_dump(exclude_none=True)).shape.layer_scale
        assert scale == (None if "no-ls" in cell else 1e-4)


def test_the_ablation_of_vit_is_that_of_its_appendix():
    """Dosovitskiy et al. 2021, appendix D.2 to D.4."""
    from usvit.models.zoo import find_model

    heads = {"token-lr0.0008": ("hidden", None, 8e-4), "gap-lr0.0008": ("linear", "avg", 8e-4),
             "gap-lr0.0003": ("linear", "avg", 3e-4)}  # fmt: skip
    listed = cells(READ["vit_ablation"])
    found = {cell: config_of("vit_ablation", None, overrides) for cell, overrides in listed.items()}
    assert set(found) == {*VIT_POSITIONS, *heads, *VIT_SHAPES}
    for cell, (position, at, _) in VIT_POSITIONS.items():
        assert (found[cell].model.vit.position, found[cell].model.vit.position_at) == (position, at)
    for cell, expected in heads.items():
        vit = found[cell].model.vit
        assert (vit.head, vit.pool, found[cell].optim.lr) == expected
    for cell, expected in VIT_SHAPES.items():
        shape = find_model("vit_b16", found[cell].model.vit.model_dump(exclude_none=True)).shape
        assert {key: getattr(shape, key) for key in expected} == expected
        assert shape.width / shape.heads == 64
    text = (configs_dir() / "pretrain" / "vit_ablation.yaml").read_text()
    assert all(str(accuracy) in text for *_, accuracy in VIT_POSITIONS.values())


def test_resnets_on_jft_also_have_the_sgd_of_bit():
    """Dosovitskiy et al. 2021, appendix D.1; Kolesnikov et al. 2020, section 3.3."""
    config = config_of("vit_jft", "bit_r50x1", cells(READ["vit_jft"])["sgd"])
    optim = resolve(config.optim, config.train.batch_size, 303e6 / config.train.batch_size)
    assert (optim.name, optim.momentum, optim.weight_decay, optim.warmup_steps) == ("sgd", 0.9, 1e-4, 5000)
    assert optim.lr == pytest.approx(0.03 * 4096 / 256)
    steps = config.train.epochs * 303e6 / config.train.batch_size
    assert [drop / steps for drop in optim.drops] == pytest.approx([10 / 40, 23 / 40, 30 / 40, 37 / 40], abs=1e-5)
    assert config_of("vit_jft", "bit_r50x1", cells(READ["vit_jft"])["adam"]) == config_of("vit_jft", "bit_r50x1")


def test_a_header_that_names_inceptions_crop_is_of_a_recipe_that_runs_it():
    for name in NAMES:
        header = (configs_dir() / "pretrain" / f"{name}.yaml").read_text().split("\n\n")[0]
        assert ("Inception" in header) == (config_of(name).views.crop == "inception"), name


@pytest.mark.parametrize(
    ("name", "keys", "axes"),
    [
        # thesis, section 3.4.5, Table 3.2, Table 2.11, Figure 5.8
        ("deit", ("optim.lr", "optim.weight_decay"), [(5e-4, 3e-4, 5e-5), (0.03, 0.04, 0.05)]),
        ("deit_distilled", ("distill.teacher",), [
            ("deit_b", "timm:regnety_040", "timm:regnety_080", "timm:regnety_120", "regnety_16gf"),
        ]),
        # thesis, Table 3.20 and section 3.7.2.4; Table 3.8
        ("cait", ("train.epochs",), [(300, 400, 500)]),
        ("deit_384", ("optim.name",), [("adamw", "sgd")]),
        ("grafit_cifar100", ("grafit.instance",), [(0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4)]),
        ("patchconvnet_i1k", ("model.drop_path",), [(0.3, 0.4, 0.5)]),
        # Three things, Table 5: AdamW and SGD
        ("three_things_384", ("optim.name", "model.tune"), [("adamw", "sgd"), ("full", "attn", "ffn")]),
    ],
)  # fmt: skip
def test_sweeps_are_the_products_of_what_their_source_varies(name, keys, axes):
    configs = [config_of(name, None, overrides) for overrides in cells(READ[name]).values()]
    assert sorted(tuple(value(config, key) for key in keys) for config in configs) == sorted(product(*axes))


def test_masked_patch_varies_target_and_share_one_at_a_time():
    """Dosovitskiy et al. 2021, appendix B.1.2."""
    configs = [
        config_of("masked_patch", None, overrides).masked_patch for overrides in cells(READ["masked_patch"]).values()
    ]
    found = [(config.target, config.corrupted) for config in configs]
    assert found == [("mean_colour", 0.5), ("downsized", 0.5), ("pixels", 0.5), ("mean_colour", 0.15)]


def test_the_ablation_of_grafit_has_the_losses_and_projectors_of_table_2_7():
    """Thesis, Table 2.7: L_CE, L_knn, L_inst, P; the baseline has one view, as have the rows without L_inst."""
    found = []
    for overrides in cells(READ["grafit_ablation"]).values():
        config = config_of("grafit_ablation", None, overrides)
        grafit, supervised = config.grafit, config.objective == "supervised"
        losses = (1, 0, 0) if supervised else (grafit.cross_entropy, grafit.knn, grafit.instance)
        assert config.views.count == (8 if losses[2] else 1)
        found.append((*losses, grafit.projector if losses[1] else None))
    assert found == [(1, 0, 0, None), (0, 0, 1, None), (1, 0, 1, None), (0, 1, 0, "linear"), (0, 1, 1, "linear"),
                     (0, 1, 0, "mlp"), (0, 1, 1, "mlp")]  # fmt: skip


def test_the_levels_of_inaturalist_are_those_of_table_2_14():
    from usvit.upstream.sources.transfer_sets import LEVELS

    found = [config_of("grafit_inat", None, overrides) for overrides in cells(READ["grafit_inat"]).values()]
    assert [config.source.coarse for config in found[:8]] == ["all", *LEVELS, None] and len(found) == 4 * 8
    kinds = [
        (config.objective, config.grafit.projector, config.grafit.instance, config.views.count) for config in found
    ]
    assert kinds[::8] == [("grafit", "mlp", 1, 4), ("grafit", "linear", 1, 4), ("grafit", "mlp", 0, 1),
                          ("supervised", "mlp", 1, 1)]  # fmt: skip


def test_the_granularity_study_has_three_losses_and_two_kinds_of_labels():
    """Thesis, section 2.2.2, Table 2.2."""
    found = []
    for overrides in cells(READ["grafit_granularity"]).values():
        config = config_of("grafit_granularity", None, overrides)
        supervised = config.objective == "supervised"
        losses = (1, 0) if supervised else (config.grafit.cross_entropy, config.grafit.triplet)
        found.append((*losses, config.source.coarse))
    assert found == [(*losses, labels) for losses in ((1, 0), (0, 1), (1, 1)) for labels in ("superclass", None)]


def test_the_subsets_of_figure_4_differ_in_nothing_but_their_size():
    """Dosovitskiy et al. 2021, section 4.3: the same hyper-parameters, and the best validation accuracy counts."""
    found = {
        name: config_of("vit_jft", None, overrides)
        for name, overrides in cells(READ["vit_jft"]).items()
        if name.endswith("M")
    }
    limits = {"9M": 9_000_000, "30M": 30_000_000, "90M": 90_000_000, "300M": None}
    assert {name: config.source.limit for name, config in found.items()} == limits
    whole = config_of("vit_jft")
    for config in found.values():
        stopping = config.train.early_stopping
        assert (stopping.monitor, stopping.keep, stopping.patience) == ("val_accuracy", "best", None)
        assert config.train.steps == 303_000_000 * whole.train.epochs // config.train.batch_size
        assert (config.optim, config.model, config.views) == (whole.optim, whole.model, whole.views)


def test_the_recommended_cells_are_those_of_the_released_files():
    """timm names the file of each of AugReg's weights after its cell."""
    from usvit.models.zoo import find_model

    for name, upstream in (("augreg_i21k", "in21k"), ("augreg_i1k", "in1k")):
        for model, cell in READ[name].recommended.items():
            url = timm.get_pretrained_cfg(find_model(model).weights[upstream].timm).url
            file = re.search(r"aug_(\w+)-wd_([\d.]+)-do_(0\.\d)-sd_(0\.\d)", url)
            way, decay, dropout, depth = file.groups()
            assert dropout == depth
            assert cell == f"{way}-{'reg' if float(dropout) else 'plain'}-wd{decay}", model


@pytest.mark.parametrize(
    ("name", "images", "peak", "warmup"),
    [
        ("deit", IMAGENET, 0.0005 * 1024 / 512, 5 * IMAGENET / 1024),
        ("cait", IMAGENET, 0.001, 5 * IMAGENET / 1024),
        ("deit3_i1k", IMAGENET, 0.003, 5 * IMAGENET / 2048),
        ("mae", IMAGENET, 1.5e-4 * 4096 / 256, 40 * IMAGENET / 4096),
        ("mae_finetune", IMAGENET, 5e-4 * 1024 / 256, 5 * IMAGENET / 1024),
        ("grafit", IMAGENET, 0.1 / 256 * 1024, 5 * IMAGENET / 1024),
        ("vit_i1k", IMAGENET, 0.003, 10_000),
        ("augreg_i1k", IMAGENET, 0.001, 10_000),
        ("beit", IMAGENET, 1.5e-3, 10 * IMAGENET / 2048),
        ("dino", IMAGENET, 5e-4 * 1024 / 256, 10 * IMAGENET / 1024),
    ],
)
def test_cosine_courses_are_the_papers(name, images, peak, warmup):
    """Half a cosine from the scaled rate, after a linear warm-up (Loshchilov & Hutter 2017; Goyal et al. 2017)."""
    config = config_of(name)
    optim = resolve(config.optim, config.train.batch_size, images / config.train.batch_size)
    steps = round(config.train.epochs * images / config.train.batch_size)
    assert optim.lr == pytest.approx(peak)
    assert optim.warmup_steps == pytest.approx(warmup, abs=1)
    start = optim.warmup_steps
    assert learning_rate(optim, start // 2, steps) == pytest.approx(peak * (start // 2 + 1) / start)
    for part in (0.0, 0.25, 0.5, 0.9):
        step = start + round(part * (steps - start))
        share = (step - start) / (steps - start)
        expected = optim.min_lr + (peak - optim.min_lr) * (1 + math.cos(math.pi * share)) / 2
        assert learning_rate(optim, step, steps) == pytest.approx(expected)


def test_ends_of_the_cosine_that_only_the_public_code_knows():
    for name, end in (("deit", 1e-5), ("mae_finetune", 1e-6), ("beit", 1e-5), ("deit_384", 5e-6), ("dino", 1e-6)):
        config = config_of(name)
        assert resolve(config.optim, config.train.batch_size, 1000.0).min_lr == pytest.approx(end)
    resnet = config_of("dino", "resnet50")
    ends = resolve(resnet.optim, resnet.train.batch_size, 1000.0)
    assert (ends.lr, ends.min_lr) == pytest.approx((0.03 * 512 / 256, 1e-6))


def test_the_linear_course_of_imagenet_21k_ends_at_zero():
    """Dosovitskiy et al. 2021, Table 3: linear."""
    optim = config_of("vit_i21k").optim
    assert [learning_rate(optim, step, 110_000) for step in (10_000, 60_000, 109_999)] == pytest.approx(
        [1e-3, 5e-4, 1e-8]
    )


def test_the_waterfall_falls_after_30_and_60_of_90_epochs():
    optim = config_of("resmlp_old_fashioned").optim
    rates = [learning_rate(optim, step, 900) for step in (0, 299, 300, 599, 600, 899)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


def _first_look():
    """The override that docs/reference/recipes.md states, and the small model of each recipe."""
    text = (REPOSITORY / "docs" / "reference" / "recipes.md").read_text()
    pairs = re.findall(r"--set (\S+)", text.split("## A first look")[1].split("```")[1])
    rows = re.findall(
        r"^\| `(\w+)` \|.*\| `([\w:]+)` ?(.*?) ?\|$", text.split("## Pre-training")[1].split("## T")[0], re.M
    )
    return pairs, {name: (model, re.findall(r"--set ([^\s`]+)", more)) for name, model, more in rows}


def test_the_reference_lists_every_recipe_with_a_small_model():
    assert sorted(_first_look()[1]) == NAMES


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    out = tmp_path_factory.mktemp("tokenizer") / "run"
    _trained(_first_look_at("beit_tokenizer", out))
    return out


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_first_steps_on_two_cores_with_the_stated_override(name, tmp_path, request, monkeypatch):
    """Recipes that ``tests/test_sources_covered_runs.py`` trains, at its own tiny scale, are only made ready here."""
    more = [f"beit.tokenizer={request.getfixturevalue('tokenizer')}"] if name in ("beit", "beit_hmlp") else []
    made = _first_look_at(name, tmp_path / "run", *more)
    if name in _trained_elsewhere():
        monkeypatch.setattr(made, "opened", _is_ready)
        with pytest.raises(Ready):
            _trained(made)
        return
    (kept,) = _trained(made).kept
    assert kept.step == 2 and math.isfinite(kept.train_loss)


class Ready(Exception):
    """All is checked, and nothing is written or trained yet."""


def _is_ready(setup):
    raise Ready


@functools.cache
def _trained_elsewhere():
    from tests.test_sources_covered_runs import chosen

    found = (re.match(r"usvit pretrain --recipe (\w+)", command.values[0]) for command in chosen())
    return {match[1] for match in found if match}


def _first_look_at(name, out, *more):
    from usvit.progress import make_progress
    from usvit.upstream.pretraining_run.experiment import Pretraining

    common, models = _first_look()
    model, own = models[name]
    overrides = parse_overrides([*common, *[pair for pair in own if "=RUN" not in pair], *more, "device=cpu"])
    config = build(PretrainConfig, settings_for(READ[name], model), overrides)
    return Pretraining(config, out=out, progress=make_progress())


def _trained(made):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timm, "create_model", _shallow)
        return made.run().result


CREATE = timm.create_model


def _shallow(name, **options):
    """Two layers where the network has 12 to 24: to make them is most of the time of the first steps.

    timm's ResMLPs take no other number.
    """
    fewer = {"resnet10t": {}, "resnet18": {"layers": (1, 1, 1, 1)}, "resmlp": {}, "usvit": {}}
    return CREATE(name, **options | fewer.get(name.split("_")[0], {"depth": 2}))
