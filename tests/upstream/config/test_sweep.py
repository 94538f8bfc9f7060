"""Recipes taken apart: sizes, cells, data sets; and what is wrong with them said."""

import pytest

from usvit.errors import UsvitError
from usvit.upstream.config.sweep import cells, choose_cells, for_dataset, read_recipe, settings_for, size_note, yielding

TEXT = """
model: {name: vit_b16, drop_path: 0.1}
optim: {lr: 0.01}
train: {epochs: 3}
sizes:
  vit_l16, vit_h14: {model: {drop_path: 0.4}}
  vit_b16: {}
sweep:
  optim.lr: [0.003, 0.01]
  length:
    short: {train: {steps: 5}}
    long: {train: {steps: 50}}
recommended:
  vit_b16: lr0.01-short
datasets:
  pets:
    optim: {weight_decay: 0.5}
    sweep: {optim.lr: [0.001]}
  cars:
    sweep: {length: null}
"""


@pytest.fixture
def recipe(tmp_path):
    return read(tmp_path, TEXT)


def read(folder, text):
    (folder / "mine.yaml").write_text(text)
    return read_recipe(str(folder / "mine.yaml"))


def test_cells_are_the_product_of_the_axes_in_the_order_of_the_file(recipe):
    assert cells(recipe) == {
        "lr0.003-short": {"optim": {"lr": 0.003}, "train": {"steps": 5}},
        "lr0.003-long": {"optim": {"lr": 0.003}, "train": {"steps": 50}},
        "lr0.01-short": {"optim": {"lr": 0.01}, "train": {"steps": 5}},
        "lr0.01-long": {"optim": {"lr": 0.01}, "train": {"steps": 50}},
    }


def test_a_cells_steps_replace_the_recipes_epochs(recipe):
    from usvit.config import build
    from usvit.upstream.config.pretrain import PretrainConfig

    train = build(PretrainConfig, settings_for(recipe), cells(recipe)["lr0.01-long"]).train
    assert (train.steps, train.epochs) == (50, None)


def test_a_size_is_laid_on_the_recipe_and_another_model_gets_it_as_it_is_with_a_note(recipe):
    assert settings_for(recipe)["model"] == {"name": "vit_b16", "drop_path": 0.1}
    for model in ("vit_l16", "vit_h14"):
        assert settings_for(recipe, model)["model"] == {"name": model, "drop_path": 0.4}
    assert settings_for(recipe, "vit_s16")["model"] == {"name": "vit_s16", "drop_path": 0.1}
    assert size_note(recipe) is None and size_note(recipe, "vit_h14") is None
    assert "has no settings for vit_s16" in size_note(recipe, "vit_s16")


def test_a_choice_of_cells_is_all_or_the_recommended_or_one(recipe):
    assert choose_cells(recipe, "all") == cells(recipe)
    assert list(choose_cells(recipe, "recommended")) == ["lr0.01-short"]
    assert list(choose_cells(recipe, "lr0.003-long", "vit_l16")) == ["lr0.003-long"]


@pytest.mark.parametrize(
    ("choice", "model", "said"),
    [
        ("recommended", "vit_l16", "recommends no cell for the model vit_l16 (known: vit_b16)"),
        ("lr0.03-short", None, "Unknown cell 'lr0.03-short'. Nearest: lr0.003-short"),
    ],
)
def test_a_cell_that_is_none_is_refused(recipe, choice, model, said):
    with pytest.raises(UsvitError) as error:
        choose_cells(recipe, choice, model)
    assert said in str(error.value)


def test_cells_leave_to_the_user_what_the_user_set(recipe):
    assert yielding(cells(recipe), {"train": {"epochs": 2}, "seed": 1}) == {
        "lr0.003-short": {"optim": {"lr": 0.003}},
        "lr0.01-short": {"optim": {"lr": 0.01}},
    }
    assert yielding(cells(recipe), {"seed": 1}) == cells(recipe)
    assert list(yielding(cells(recipe), {"optim": {"lr": 1.0}, "train": {"steps": 2}})) == ["lr0.003-short"]


def test_a_recipe_without_a_sweep_has_no_cells(tmp_path):
    plain = read(tmp_path, "train: {steps: 3}\n")
    assert cells(plain) == {} and settings_for(plain) == {"recipe": "mine", "train": {"steps": 3}}
    with pytest.raises(UsvitError, match="has no sweep: remove --cell"):
        choose_cells(plain, "all")


def test_a_data_set_changes_settings_and_axes_by_name(recipe):
    pets = for_dataset(recipe, "pets")
    assert pets.settings["optim"] == {"lr": 0.01, "weight_decay": 0.5} and "sweep" not in pets.settings
    assert list(cells(pets)) == ["lr0.001-short", "lr0.001-long"]
    assert list(cells(for_dataset(recipe, "cars"))) == ["lr0.003", "lr0.01"]
    assert for_dataset(recipe, "flowers102") == recipe
    assert "weight_decay" not in recipe.settings["optim"], "the recipe itself stays"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sizes: [vit_b16]", "sizes: it must be a mapping"),
        ("sizes: {vit_b16: 3}", "sizes.vit_b16: it must be a mapping"),
        ("sweep: {optim.lr: []}", "sweep.optim.lr: the axis has no values"),
        ("sweep: {way: 3}", "sweep.way: it must be a mapping"),
        ("sweep: {a: {x: {seed: 1}}, b: {y: {seed: 2}}}", "sweep.b: seed is set by another axis, too"),
        ("sweep: {a: {'../x': {seed: 1}}}", "is not a valid name of a cell"),
        ("sweep: {a: {x: {seed: 1}}}\nrecommended: {vit_b16: y}", "recommended.vit_b16: 'y' is not a cell"),
    ],
)
def test_a_recipe_that_cannot_be_is_said_where(tmp_path, text, said):
    with pytest.raises(UsvitError) as error:
        read(tmp_path, text)
    assert said in str(error.value) and "recipe mine" in str(error.value)


def test_a_source_that_is_no_mapping_is_named(tmp_path):
    with pytest.raises(UsvitError, match="source: it must be a mapping, not -inf"):
        _ = read(tmp_path, "source: -.inf\n").source
    assert read(tmp_path, "source: {name: cars}\n").source == "cars" and read(tmp_path, TEXT).source is None


def test_a_sweep_of_too_many_cells_is_refused_before_they_are_made(tmp_path):
    axis = list(range(1000))
    with pytest.raises(UsvitError, match="1,000,000,000 cells"):
        read(tmp_path, f"sweep: {{optim.lr: {axis}, optim.eps: {axis}, train.steps: {axis}}}\n")
