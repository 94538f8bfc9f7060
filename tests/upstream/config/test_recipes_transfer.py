"""Recipes of transfer against the tables of their sources."""

from itertools import product

import pytest

from tests.conftest import REPOSITORY
from tests.upstream.config.recipe_tables import TRANSFER
from usvit.config import build, recipe_names
from usvit.data.phantom import WORDING
from usvit.resources import configs_dir
from usvit.upstream.config.sweep import cells, for_dataset, read_recipe, settings_for
from usvit.upstream.config.transfer import TransferConfig

NAMES = recipe_names("transfer")
READ = {name: read_recipe(name, "transfer") for name in NAMES}
THESIS = {"deit": "deit", "cait": "cait", "resmlp": "resmlp", "patchconvnet": "patchconvnet_i1k", "deit3": "deit3_i1k",
          "three_things": "three_things_ls"}  # fmt: skip
"""Transfer -> the pre-training whose hyper-parameters it keeps (thesis, section 3.7.1.3)."""


def config_of(name, dataset=None, model=None, overrides=None):
    recipe = READ[name]
    recipe = for_dataset(recipe, dataset) if dataset else recipe
    source = {"source": {"name": dataset}} if dataset else {}
    return build(TransferConfig, settings_for(recipe, model), {"cells": cells(recipe)}, source, overrides or {})


@pytest.mark.parametrize("name", NAMES)
def test_every_size_data_set_and_cell_is_valid(name):
    from usvit.models.zoo import find_model
    from usvit.upstream.sources.catalog import SOURCES, TORCHVISION

    recipe = READ[name]
    for dataset in [None, *recipe.datasets]:
        config = config_of(name, dataset)
        assert config.recipe == name and (config.source.name in SOURCES or config.source.name.startswith(TORCHVISION))
        own = for_dataset(recipe, dataset) if dataset else recipe
        for axis in own.sweep.values():
            for overrides in axis.values():  # cells() has laid them on each other, and refuses what overlaps
                build(TransferConfig, settings_for(own), overrides)
    for model in recipe.sizes:
        config = config_of(name, None, model)
        find_model(config.model.name, config.model.vit.model_dump(exclude_none=True))


@pytest.mark.parametrize("name", NAMES)
def test_every_part_is_one_of_the_data_sets_parts_and_none_is_two(name):
    """What is learnt from, chosen on and tested."""
    from usvit.upstream.sources.catalog import TORCHVISION
    from usvit.upstream.sources.open import named_sets
    from usvit.upstream.sources.torchvision_sets import SPLITS

    known_splits = {name: one.splits for name, one in named_sets().items()}
    known_splits |= {f"{TORCHVISION}{name}": tuple(splits) for name, splits in SPLITS.items()}
    for dataset in [None, *READ[name].datasets]:
        config = config_of(name, dataset)
        if config.source.name in ("phantom", "data"):
            continue  # every split of generated images has others; the images of a data card are split here
        splits = known_splits[config.source.name]
        parts = [config.source.split, config.source.val, config.test]
        known = "+".join(part for part in parts if part).split("+")
        assert set(known) <= set(splits) and len(known) == len(set(known)), (dataset, known)
        if config.final is not None:
            assert set(config.final.split("+")) <= set(splits) - {config.test}


@pytest.mark.parametrize("name", NAMES)
def test_the_header_names_source_and_command_and_the_reference_lists_it(name):
    header = (configs_dir() / "transfer" / f"{name}.yaml").read_text().split("\n\n")[0]
    assert all(line.startswith("#") for line in header.splitlines())
    named = "--dataset" if f"--recipe {name} --dataset" in header else "--source"
    assert f"usvit transfer --recipe {name} {named}" in header
    transfer = (REPOSITORY / "docs" / "reference" / "recipes.md").read_text().split("\n## Transfer")[1]
    assert f"| `{name}` |" in transfer


@pytest.mark.parametrize("dataset", TRANSFER["vit"])
def test_vit_is_table_4(dataset):
    """Dosovitskiy et al. 2021, Table 4 and appendix B.1.1."""
    config = config_of("vit", dataset)
    steps, rates, share = TRANSFER["vit"][dataset]
    assert (config.train.steps, config.source.val_share) == (steps, share)
    assert [cell["optim"]["lr"] for cell in config.cells.values()] == rates
    optim = config.optim
    assert (optim.name, optim.momentum, optim.weight_decay, optim.clip_norm) == ("sgd", 0.9, 0, 1.0)
    assert (config.train.batch_size, optim.schedule, config.model.image_size) == (512, "cosine", 384)
    # Kolesnikov et al. 2020, section 3.3
    assert (config.views.crop, round(384 / config.views.train_crop)) == ("squash_crop", 448)
    assert config.final == config.source.split, "the final training is on the entire training set"


def test_vtab_is_one_setting_of_table_4():
    config = config_of("vtab1k")
    assert (config.train.steps, config.optim.lr, config.train.batch_size, config.model.image_size) == (
        2500, 0.01, 512, 384,
    )  # fmt: skip
    assert (config.source.split, config.source.val, config.final) == ("train800", "val200", "train800val200")
    assert config.cells == {}


@pytest.mark.parametrize("dataset", TRANSFER["augreg"])
def test_augreg_is_table_4(dataset):
    """Steiner et al. 2022, Table 4 and section 3.5."""
    rates, lengths = TRANSFER["augreg"][dataset]
    config = config_of("augreg", dataset)
    found = [
        (cell["optim"]["lr"], (cell["train"]["steps"], cell["optim"]["warmup_steps"])) for cell in config.cells.values()
    ]
    assert sorted(found) == sorted(product(rates, lengths))
    optim = config.optim
    assert (optim.name, optim.momentum, optim.momentum_dtype, optim.clip_norm) == ("sgd", 0.9, "bfloat16", 1.0)
    assert (config.train.batch_size, config.optim.schedule) == (512, "cosine")
    assert (config.model.dropout, config.model.drop_path, config.mix.mixup, config.views.policy) == (0, 0, 0, "none")
    assert (config.views.crop, round(384 / config.views.train_crop)) == ("squash_crop", 448)


@pytest.mark.parametrize(
    ("name", "dataset"), list(product(["augreg_scratch", "augreg_scratch_b16"], ["pets", "resisc45"]))
)
def test_augreg_from_scratch_is_appendix_a(name, dataset):
    """Steiner et al. 2022, appendix A; a weight decay there is what a step takes off, PyTorch's times the rate."""
    augmentation = [(0, 0, 0), (2, 10, 0.2), (2, 15, 0.2), (2, 15, 0.5), (2, 20, 0.5), (2, 20, 0.8), (4, 15, 0.5),
                    (4, 20, 0.8)]  # fmt: skip
    expected = sorted(product(*TRANSFER[name][dataset], [0.0, 0.1, 0.2], augmentation))
    base, found = config_of(name, dataset), []
    for cell in base.cells.values():
        model, views, mix, optim = (cell[part] for part in ("model", "views", "mix", "optim"))
        assert model["dropout"] == model["drop_path"]
        lma = (views.get("layers", 0), views.get("magnitude", 0), mix["mixup"])
        decay = float(f"{optim['lr'] * optim['weight_decay']:.3g}")
        found.append((cell["train"]["epochs"], optim["lr"], decay, model["dropout"], lma))
        assert optim["warmup_epochs"] == pytest.approx(cell["train"]["epochs"] / 10)
    assert sorted(found) == expected
    assert (base.model.name, base.model.weights) == ("vit_b16" if name.endswith("b16") else "vit_b32", "scratch")
    assert (base.views.crop, base.views.scale) == ("inception", (0.05, 1.0))
    assert (base.views.randaugment, base.views.probability, base.optim.name) == ("original", 1.0, "adamw")
    assert base.source.val_share == (0.1 if dataset == "pets" else 0.0)


def test_sovits_linear_probe_is_appendix_e_2():
    """Alabdulmohsin et al. 2023: the classifier, chosen on 2 %; crops, rates, epochs, decays."""
    config, found = config_of("sovit_linear"), []
    for cell in config.cells.values():
        view, optim = cell["views"], cell["optim"]
        random = view == {"crop": "squash_crop", "train_crop": 224 / 256}
        assert random or view == {"crop": "inception", "scale": [0.05, 1.0], "ratio": [0.75, 1.33]}
        decay = float(f"{optim['lr'] * optim['weight_decay']:.3g}")
        found.append((random, optim["lr"], cell["train"]["epochs"], decay))
    assert sorted(found) == sorted(product([False, True], [1e-3, 3e-4, 1e-4], [1, 3, 10], [0.0, 1e-4]))
    assert (config.model.tune, config.source.val_share, config.model.image_size) == ("head", 0.02, 224)


@pytest.mark.parametrize("dataset", TRANSFER["bit"])
def test_bit_is_the_hyper_rule(dataset):
    """Kolesnikov et al. 2020, by their public code."""
    from usvit.training.optimizers import learning_rate

    config = config_of("bit", dataset)
    steps, warmup, drops, mixup, size = TRANSFER["bit"][dataset]
    assert (config.train.steps, config.train.batch_size, config.mix.mixup) == (steps, 512, mixup)
    precrop = {480: 512, 128: 160}[size]
    assert config.model.image_size == size
    assert (config.views.crop, config.views.train_crop) == ("squash_crop", size / precrop)
    rates = [learning_rate(config.optim, step, steps) for step in (warmup, *drops, steps - 1)]
    assert rates == pytest.approx([3e-3, 3e-4, 3e-5, 3e-6, 3e-6])
    assert learning_rate(config.optim, drops[0] - 1, steps) == pytest.approx(3e-3)
    assert learning_rate(config.optim, warmup // 2 - 1, steps) == pytest.approx(1.5e-3)
    optim = config.optim
    assert (optim.name, optim.momentum, optim.nesterov, optim.weight_decay) == ("sgd", 0.9, False, 0)
    assert config.source.val_share == config_of("vit", dataset).source.val_share, "both are chosen on the same images"


def test_augreg_chooses_on_the_stated_parts():
    """Steiner et al. 2022, section 3.1."""
    stated = {"imagenet": 0.01, "cifar100": 0.02, "pets": 0.1}
    assert {name: config_of("augreg", name).source.val_share for name in stated} == stated
    assert {config_of("augreg", name).source.val for name in ("resisc45", "kitti_distance")} == {"val"}


def test_augreg_on_vtab_has_8_cells():
    """Steiner et al. 2022, appendix C: four rates, two schedules."""
    found = [(cell["optim"]["lr"], cell["train"]["steps"]) for cell in config_of("augreg_vtab").cells.values()]
    assert sorted(found) == sorted(product([0.001, 0.003, 0.01, 0.03], [500, 2500]))


@pytest.mark.parametrize("task", ["vtab_clevr_dist", "vtab_kitti", "cifar100", "torchvision:SVHN", "pets"])
def test_augreg_on_vtab_uses_all_training_images_and_tests_the_selected_network(task):
    """Zhai et al. 2019: VTAB holds 10 % of CIFAR-100 and SVHN and 20 % of Pets out; other tasks have a split."""
    config = config_of("augreg_vtab", task)
    share = {"cifar100": 0.1, "torchvision:SVHN": 0.1, "pets": 0.2}.get(task, 0.0)
    assert (config.source.val_share, config.source.val) == (share, None if share else "val")
    assert config.source.split == ("trainval" if task == "pets" else "train") and config.final is None


@pytest.mark.parametrize(("name", "dataset"), list(product(THESIS, TRANSFER["thesis"])))
def test_the_thesis_transfers_with_the_trainings_values_and_a_part_of_its_rate(name, dataset):
    """Thesis, section 3.7.1.3."""
    from usvit.upstream.config.pretrain import PretrainConfig

    transfer = config_of(name, dataset)
    training = build(PretrainConfig, settings_for(read_recipe(THESIS[name]), transfer.model.name))
    part, epochs = TRANSFER["thesis"][dataset]
    assert transfer.optim.lr == pytest.approx(training.optim.lr / part)
    assert transfer.train.epochs == epochs
    same = {"lr": 0, "min_lr": 0}
    assert {**transfer.optim.model_dump(), **same} == {**training.optim.model_dump(), **same}
    cropped = {"test_crop": 0.875} if name == "cait" else {}  # caption of Table 3.19
    assert transfer.views == training.views.model_copy(update=cropped)
    assert (transfer.mix, transfer.loss) == (training.mix, training.loss)
    assert transfer.train.batch_size == training.train.batch_size
    assert transfer.model.drop_path == training.model.drop_path
    assert transfer.distill.kind == "none"
    tunes = {cell["model"]["tune"] for cell in transfer.cells.values()} or {transfer.model.tune}
    expected = {"deit3": {"attn" if dataset == "flowers102" else "full"}, "three_things": {"full", "attn", "ffn"}}
    assert tunes == expected.get(name, {"full"})


@pytest.mark.parametrize("dataset", TRANSFER["grafit"])
def test_grafit_is_section_2_5_4(dataset):
    short, long = TRANSFER["grafit"][dataset]
    config, best = config_of("grafit", dataset), config_of("grafit_sota", dataset)
    assert (config.train.epochs, config.optim.lr, config.train.batch_size) == (short, 0.01, 512)
    assert (config.optim.schedule, config.model.image_size, config.optim.warmup_steps) == ("cosine", 224, 0)
    assert (config.model.head, best.model.head) == ("mlp", "mlp")
    assert config_of("grafit", "cifar100").model.head == "new", "Table 2.13: a linear classifier"
    assert (best.train.epochs, best.model.image_size, best.mix.cutmix > 0) == (long, 384, True)
    fixed = config_of("grafit_frozen", dataset)  # "the network trunk remains fixed" (2.4.6)
    assert (config.model.tune, fixed.model.tune) == ("full", "head")
    same = {"recipe": "", "model": fixed.model.model_copy(update={"tune": "full"})}
    assert fixed.model_copy(update=same) == config.model_copy(update={"recipe": ""})


def test_the_probes_have_the_sources_values():
    """Dosovitskiy et al. 2021, section 4.1; the issue's 5, 10 and 25; thesis, section 2.4.3."""
    assert config_of("fewshot").shots == (5, 10, 25)
    knn = config_of("knn")
    assert (knn.k, knn.sigma) == ((10, 15, 20, 25, 30), 0.05)
    assert [config_of(name).how for name in ("fewshot", "linear", "knn")] == ["fewshot", "linear", "knn"]


def test_clusters_and_separability_have_the_numbers_of_the_thesis():
    """Sections 2.4.2 (15000 clusters, 1500 for CIFAR-100) and 2.2.1 (10 splits of 20 coarse classes)."""
    assert [config_of("clusters", dataset).clusters for dataset in (None, "cifar100")] == [15_000, 1_500]
    config = config_of("separability")
    assert (config.how, config.draws, config.source.coarse) == ("separability", 10, "superclass")


def test_prompts_of_phantoms_name_no_class_and_every_class_has_some():
    prompts = config_of("text_phantom").text.prompts
    concepts = {f"{kind}: {value}" for kind, values in WORDING.items() for value in values}
    assert set(prompts) == {"benign", "malignant", "normal"} | concepts
    assert not any(name in one for each in prompts.values() for one in each for name in ("benign", "malignant"))
