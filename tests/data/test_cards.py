from pathlib import Path

import pytest
import yaml

from usvit.data.cards import card_names, load_card, read_card
from usvit.data.readers import reader_for
from usvit.errors import UsvitError
from usvit.resources import data_cards_dir


def edited(tmp_path: Path, **changes: object) -> Path:
    """BUSI's card with some keys changed; None takes a key out."""
    _, front, body = (data_cards_dir() / "busi.md").read_text(encoding="utf-8").split("---\n", 2)
    settings = {key: value for key, value in (yaml.safe_load(front) | changes).items() if value is not None}
    path = tmp_path / "card.md"
    path.write_text(f"---\n{yaml.safe_dump(settings)}---\n{body}", encoding="utf-8")
    return path


@pytest.mark.parametrize("name", card_names())
def test_every_shipped_card_is_valid_has_a_reader_and_malignant_is_positive(name):
    card = load_card(name)
    assert card.name == name
    assert card.positive_class == "malignant"
    assert card.layout
    assert card.how_to_get
    assert callable(reader_for(card).read)


def test_counts_are_the_releases_own():
    assert load_card("busi").classes == {"benign": 437, "malignant": 210, "normal": 133}
    assert load_card("b").classes == {"benign": 109, "malignant": 54}
    assert set(load_card("phantom").classes) == {"benign", "malignant", "normal"}


def test_only_the_phantom_has_patients():
    assert {name: load_card(name).patient_ids for name in card_names()} == {"b": "no", "busi": "no", "phantom": "yes"}


def test_keys_of_other_tools_are_kept(tmp_path):
    assert read_card(edited(tmp_path, size_categories=["n<1K"])).model_extra["size_categories"] == ["n<1K"]


@pytest.mark.parametrize("key", ["name", "classes", "positive_class", "patient_ids", "layout", "license"])
def test_missing_field_is_named_with_the_file(tmp_path, key):
    path = edited(tmp_path, **{key: None})
    with pytest.raises(UsvitError, match=rf"{path} is not valid: .*{key}"):
        read_card(path)


def test_positive_class_must_be_a_class(tmp_path):
    with pytest.raises(UsvitError, match="positive_class 'cancer' is none of the classes"):
        read_card(edited(tmp_path, positive_class="cancer"))


@pytest.mark.parametrize(
    "text", ["# A card\n", "---\nname: x\n", "text\n---\nname: x\n---\n", ""], ids=["none", "open", "late", "empty"]
)
def test_card_without_front_matter_is_refused(tmp_path, text):
    path = tmp_path / "card.md"
    path.write_text(text)
    with pytest.raises(UsvitError, match="does not begin with YAML front matter"):
        read_card(path)


@pytest.mark.parametrize("front", ["[1, 2]\n", "a: [\n", "\n"], ids=["list", "broken", "blank"])
def test_front_matter_that_is_no_mapping_is_refused(tmp_path, front):
    path = tmp_path / "card.md"
    path.write_text(f"---\n{front}---\n")
    with pytest.raises(UsvitError, match="is not valid"):
        read_card(path)


def test_unknown_card_suggests_the_nearest():
    with pytest.raises(UsvitError, match=r"Unknown data set 'phantm'. Nearest: phantom"):
        load_card("phantm")
