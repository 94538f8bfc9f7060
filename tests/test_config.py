"""Settings: three layers, one schema, the papers' numbers."""

import pytest

from usvit.config import (
    build_config,
    identity,
    load_recipe,
    parse_overrides,
    recipe_names,
)
from usvit.errors import UsvitError


def recipe(name, *pairs):
    return build_config(load_recipe(name), parse_overrides(list(pairs)))


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_is_valid_and_says_its_command_and_source(name):
    assert recipe(name).recipe == name
    from usvit.resources import configs_dir

    header = (configs_dir() / "finetune" / f"{name}.yaml").read_text().split("\n\n")[0]
    assert all(line.startswith("#") for line in header.splitlines())
    assert "usvit cv" in header and "Ours: docs/benchmarks.md" in header


def test_the_2022_vit_recipe_holds_the_papers_numbers():
    """Gheflati & Rivaz 2022, section III.D."""
    config = recipe("gheflati2022_vit")
    assert (config.optim.name, config.optim.momentum, config.optim.lr) == ("sgd", 0.9, 0.001)
    assert (config.optim.schedule, config.optim.warmup_steps, config.train.steps) == ("cosine", 10, 250)
    assert (config.train.batch_size, config.model.image_size) == (128, 224)
    assert config.loss.class_weights == "balanced"
    assert (config.split.test_fraction, config.split.val_fraction, config.split.folds) == (0.15, 0.15, 5)


def test_the_2022_augmented_recipe_differs_in_augmentation_alone():
    plain, augmented = (recipe(name).model_dump() for name in ("gheflati2022_vit", "gheflati2022_vit_aug"))
    assert augmented["input"].pop("augment") == "light" and plain["input"].pop("augment") == "none"
    assert {**plain, "recipe": ""} == {**augmented, "recipe": ""}


def test_the_2022_cnn_recipe_holds_the_papers_numbers():
    config = recipe("gheflati2022_cnn")
    assert (config.optim.name, config.train.epochs, config.model.image_size) == ("adam", 30, 224)


def test_later_layers_win_and_numbers_are_read_as_people_write_them():
    config = recipe("gheflati2022_vit", "optim.lr=3e-4", "train.batch_size=16", "optim.clip_norm=null")
    assert (config.optim.lr, config.train.batch_size, config.optim.clip_norm) == (3e-4, 16, None)


def test_epochs_given_replace_the_recipes_steps():
    config = recipe("gheflati2022_vit", "train.epochs=2")
    assert (config.train.epochs, config.train.steps) == (2, None)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (["train.batchsize=8"], "Nearest: train.batch_size"),
        (["optim.learning_rate=1"], "Unknown setting 'optim.learning_rate'"),
        (["optim.lr=fast"], "optim.lr"),
        (["optim.lr=inf"], "optim.lr"),
        (["optim.lr=-1"], "greater than 0"),
        (["optim=3"], "optim"),
        (["train={steps: 5, epochs: 5}"], "exactly one of train.steps and train.epochs"),
        (["split.test_fraction=0.9", "split.val_fraction=0.2"], "leave no training images"),
        (["input.augment=ligt"], "input.augment"),
        (["train.steps"], "--set takes key=value"),
        (["train.steps=[1"], "not a YAML value"),
    ],
)
def test_a_wrong_setting_is_named_with_what_to_do(pairs, said):
    with pytest.raises(UsvitError) as error:
        recipe("demo", *pairs)
    assert said in str(error.value)


def test_a_recipe_file_of_ones_own_is_read_and_named_after_the_file(tmp_path):
    (tmp_path / "mine.yaml").write_text("train: {steps: 3}\n")
    assert build_config(load_recipe(str(tmp_path / "mine.yaml"))).recipe == "mine"


@pytest.mark.parametrize(("text", "said"), [("- a\n- b\n", "must be a mapping"), ("a: [", "not valid YAML")])
def test_a_recipe_file_that_is_none_is_refused(tmp_path, text, said):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(UsvitError, match=said):
        load_recipe(str(tmp_path / "mine.yaml"))


def test_what_changes_only_speed_is_no_part_of_a_runs_identity():
    slow = recipe(
        "demo",
        "workers=0",
        "folds_at_once=1",
        "input.cache_gb=0",
        "input.device_store=false",
        "train.checkpoint_seconds=1",
    )
    fast = recipe(
        "demo",
        "workers=8",
        "folds_at_once=5",
        "input.cache_gb=9",
        "input.device_store=true",
        "train.checkpoint_seconds=99",
    )
    assert identity(slow.model_dump()) == identity(fast.model_dump())
    assert identity(recipe("demo", "seed=1").model_dump()) != identity(fast.model_dump())


def test_a_run_with_another_unit_has_another_identity():
    images, patients = recipe("demo"), recipe("demo", "units.unit=patient")
    written = patients.model_dump(mode="json")
    assert written["units"] == {"unit": "patient", "pooling": "mean", "unit_labels": "any"}
    assert type(patients).model_validate(written) == patients
    assert identity(written) != identity(images.model_dump())
