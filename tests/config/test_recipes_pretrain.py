"""Recipes of upstream training against the tables of their sources, and their first steps."""

import math
import re
from itertools import product

import pytest
import timm

from tests.config.recipe_tables import ABLATION, CAIT_ABLATION, DROP_PATH, OTHER_SIZES, TABLES
from tests.conftest import REPOSITORY
from usvit.config import PretrainConfig, build, cells, nested, parse_overrides, read_recipe, recipe_names, settings_for
from usvit.training.optimizers import learning_rate, resolve

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
    from usvit.resources import configs_dir

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


def test_the_ablation_of_deit_changes_one_thing_at_a_time():
    """Thesis, Tables 3.8 and 3.3."""
    assert list(cells(READ["deit_ablation"])) == list(ABLATION)
    for name, overrides in cells(READ["deit_ablation"]).items():
        config = config_of("deit_ablation", None, overrides)
        expected = TABLES["deit_ablation"] | ABLATION[name]
        assert {key: value(config, key) for key in expected} == expected, name


@pytest.mark.parametrize(
    ("name", "keys", "axes"),
    [
        # thesis, section 3.4.5, Table 3.2, Table 2.11, Figure 5.8
        ("deit", ("optim.lr", "optim.weight_decay"), [(5e-4, 3e-4, 5e-5), (0.03, 0.04, 0.05)]),
        ("deit_distilled", ("distill.teacher",), [
            ("deit_b", "timm:regnety_040", "timm:regnety_080", "timm:regnety_120", "regnety_16gf"),
        ]),
        ("grafit_cifar100", ("grafit.instance",), [(0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4)]),
        ("patchconvnet_i1k", ("model.drop_path",), [(0.3, 0.4, 0.5)]),
        # Three things, Table 5: AdamW and SGD
        ("three_things_384", ("optim.name", "model.tune"), [("adamw", "sgd"), ("full", "attn", "ffn")]),
    ],
)  # fmt: skip
def test_sweeps_are_the_products_of_what_their_source_varies(name, keys, axes):
    configs = [config_of(name, None, overrides) for overrides in cells(READ[name]).values()]
    assert sorted(tuple(value(config, key) for key in keys) for config in configs) == sorted(product(*axes))


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
    for name, end in (("deit", 1e-5), ("mae_finetune", 1e-6), ("beit", 1e-5), ("deit_384", 5e-6)):
        config = config_of(name)
        assert resolve(config.optim, config.train.batch_size, 1000.0).min_lr == pytest.approx(end)


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
    _first_steps("beit_tokenizer", out)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_first_steps_on_two_cores_with_the_stated_override(name, tmp_path, request):
    more = [f"beit.tokenizer={request.getfixturevalue('tokenizer')}"] if name in ("beit", "beit_hmlp") else []
    metrics = _first_steps(name, tmp_path / "run", *more)
    (kept,) = metrics.kept
    assert kept.step == 2 and math.isfinite(kept.train_loss)


def _first_steps(name, out, *more):
    from usvit.experiments.pretraining import Pretraining
    from usvit.progress import make_progress

    common, models = _first_look()
    model, own = models[name]
    overrides = parse_overrides([*common, *[pair for pair in own if "=RUN" not in pair], *more, "device=cpu"])
    config = build(PretrainConfig, settings_for(READ[name], model), overrides)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timm, "create_model", _shallow)
        return Pretraining(config, out=out, progress=make_progress()).run().result


CREATE = timm.create_model


def _shallow(name, **options):
    """Two layers where the network has 12 to 24: to make them is most of the time of the first steps.

    timm's ResMLPs take no other number.
    """
    fewer = {"resnet10t": {}, "resnet18": {"layers": (1, 1, 1, 1)}, "resmlp": {}}
    return CREATE(name, **options | fewer.get(name.split("_")[0], {"depth": 2}))
