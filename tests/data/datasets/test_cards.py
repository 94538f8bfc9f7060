import os
import re
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPOSITORY
from usvit.data.datasets.cards import card_facts, card_names, load_card, load_cards, read_card, read_prose
from usvit.data.datasets.readers import reader_for
from usvit.errors import LeakageError, UsvitError
from usvit.resources import data_cards_dir


def edited(tmp_path: Path, **changes: object) -> Path:
    """BUSI's card with some keys changed; None takes a key out."""
    _, front, body = (data_cards_dir() / "busi.md").read_text(encoding="utf-8").split("---\n", 2)
    settings = {key: value for key, value in (yaml.safe_load(front) | changes).items() if value is not None}
    path = tmp_path / "card.md"
    path.write_text(f"---\n{yaml.safe_dump(settings)}---\n{body}", encoding="utf-8")
    return path


OPEN = ["coco", "dicom", "folder", "table"]
"""Cards for a user's own images: their classes are what is found."""
COUNTS = {
    "b": {"benign": 109, "malignant": 54},
    "breast": {"benign": 154, "malignant": 98, "normal": 4},
    "breastmnist": {"benign_or_normal": 570, "malignant": 210},
    "bus_bra": {"benign": 1268, "malignant": 607},
    "bus_uclm": {"benign": 174, "malignant": 90, "normal": 419},
    "busi": {"benign": 437, "malignant": 210, "normal": 133},
    "busis": {"benign": 306, "malignant": 256},
    "curated_busi": {"benign": 222, "malignant": 164, "normal": 64},
    "gdph_sysucc": {"benign": 886, "malignant": 1519},
    "masks": {"image": None},
    "oasbud": {"benign": 96, "malignant": 104},
    "phantom": {"benign": None, "malignant": None, "normal": None},
}


@pytest.mark.parametrize("name", card_names())
def test_every_shipped_card_is_whole(name):
    card = load_card(name)
    assert card.name == name
    assert card.layout.strip()
    assert card.how_to_get.strip()
    positive = {"masks": "image"} | dict.fromkeys(OPEN)  # masks have no class of the image
    assert card.positive_class == positive.get(name, "malignant")
    headings = re.findall(r"^## (.+)$", read_prose(name), re.MULTILINE)
    sections = ["Known faults", "Licence", "Errata of papers"]
    assert [heading for heading in headings if heading in sections] == sections


@pytest.mark.parametrize("name", card_names())
def test_every_shipped_card_has_a_reader_or_says_why_not(name):
    card = load_card(name)
    if card.reader is None:
        with pytest.raises(UsvitError, match="cannot be read: it holds raw"):
            reader_for(card)
    else:
        assert callable(reader_for(card).read)


def test_counts_are_the_releases_own_and_in_the_order_of_the_outputs():
    assert {name: list(load_card(name).classes.items()) for name in card_names()} == {
        **{name: list(counts.items()) for name, counts in COUNTS.items()},
        **{name: [] for name in OPEN},
    }


def test_totals_are_those_of_the_papers():
    totals = {name: sum(counts.values()) for name, counts in COUNTS.items() if name not in ("phantom", "masks")}
    assert totals == {
        **{"b": 163, "breast": 256, "breastmnist": 780, "bus_bra": 1875, "bus_uclm": 683, "busi": 780},
        **{"busis": 562, "curated_busi": 450, "gdph_sysucc": 2405, "oasbud": 200},
    }


def test_patients_are_claimed_only_where_they_are_published():
    cards = [load_card(name) for name in card_names()]
    assert {card.name for card in cards if card.patient_ids == "yes"} == {"breast", "bus_bra", "bus_uclm", "phantom"}
    assert {card.name: card.n_patients for card in cards if card.n_patients} == {
        **{"breast": 256, "bus_bra": 1064, "bus_uclm": 38, "oasbud": 78},
    }


def test_only_what_has_a_licence_and_an_address_is_fetched():
    fetched = {name: load_card(name).fetch for name in card_names() if load_card(name).fetch}
    assert {name: fetch.zenodo for name, fetch in fetched.items()} == {
        **{"bus_bra": 8231412, "curated_busi": 19047974, "breastmnist": None},
    }
    assert [file.md5 for file in fetched["breastmnist"].files] == ["b56378a6eefa9fed602bb16d192d4c8b"]
    assert {load_card(name).license for name in fetched} == {"CC-BY-4.0"}


def test_data_sets_that_share_images_name_each_other():
    family = {"busi", "curated_busi", "breastmnist"}
    for name in card_names():
        assert set(load_card(name).same_images_as) == (family - {name} if name in family else set())


def test_label_of_breastmnist_is_not_mistaken():
    """In the release 0 is malignant: the opposite of most."""
    assert load_card("breastmnist").labels == {"0": "malignant", "1": "benign_or_normal"}


def test_the_swapped_counts_of_the_2022_study_are_an_erratum():
    assert "437 malignant and 210 benign: the reverse" in " ".join(read_prose("busi").split())


@pytest.mark.parametrize("name", ["dicom", "folder", "table"])
def test_example_in_the_prose_is_a_card_that_works(name, tmp_path):
    example = re.search(r"(?:^    .*\n|^\n)*?^    ---\n(?:^    .*\n|^\n)+?^    ---\n", read_prose(name), re.MULTILINE)
    lines = [line.removeprefix("    ") for line in example[0].strip("\n").split("\n")]
    path = tmp_path / "my_card.md"
    path.write_text("\n".join(lines[lines.index("---") :]) + "\n")
    card = read_card(path)
    assert (card.name, card.reader, card.positive_class) == ("my_clinic", name, "malignant")


def test_keys_of_other_tools_are_kept(tmp_path):
    assert read_card(edited(tmp_path, size_categories=["n<1K"])).model_extra["size_categories"] == ["n<1K"]


@pytest.mark.parametrize("key", ["name", "classes", "positive_class", "patient_ids", "layout", "license"])
def test_missing_field_is_named_with_the_file(tmp_path, key):
    path = edited(tmp_path, **{key: None})
    with pytest.raises(UsvitError, match=rf"{path} is not valid: .*{key}"):
        read_card(path)


def test_positive_class_must_be_a_class(tmp_path):
    with pytest.raises(UsvitError, match="positive_class 'cancer' is not one of the classes"):
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


def test_bare_yes_and_numbers_mean_what_they_say(tmp_path):
    card = read_card(edited(tmp_path, patient_ids=False, labels={0: "benign", 1: "malignant"}))
    assert card.patient_ids == "no"
    assert card.labels == {"0": "benign", "1": "malignant"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"license": "free for all!"}, "neither an SPDX identifier nor 'unclear'"),
        ({"labels": {"B": "bening"}}, "labels lead to 'bening', which is not one of the classes"),
        ({"classes": {"benign": -1, "malignant": 2}}, r"classes.benign: Input should be greater"),
        ({"reader": None, "no_reader": None}, "reader: Field required"),
        ({"fetch": {"zenodo": 1}}, "only allowed for data sets with a clear licence"),
        ({"license": "MIT", "fetch": {}}, "fetch needs either a zenodo record or files"),
        ({"license": "MIT", "fetch": {"files": [{"url": "https://a.org/b"}]}}, "needs a sha256 or md5"),
        ({"license": "MIT", "fetch": {"files": [{"url": "ftp://a.org/b", "md5": "0" * 32}]}}, "fetch.files.0.url"),
        ({"label_level": "frame"}, "label_level: Input should be 'image', 'lesion', 'breast', 'exam' or 'patient'"),
    ],
)
def test_wrong_field_is_named_with_what_is_wrong(tmp_path, changes, said):
    with pytest.raises(UsvitError, match=f"card.md is not valid: .*{said}") as caught:
        read_card(edited(tmp_path, **changes))
    assert "Value error" not in str(caught.value)


HEAD = """# Data sets

The data sets and their data cards (`data_cards/`). `usvit data info NAME` shows the same.
This page is made of the cards; to renew it: `USVIT_RENEW=1 python -m pytest tests/data/datasets/test_cards.py -k page`.

| name | images | licence | patient ids | `--fetch` |
|---|---|---|---|---|
"""


def page() -> str:
    cards = [load_card(name) for name in card_names()]
    rows = "".join(
        f"| [{card.name}](#{card.name}) | {facts['Images']} | {card.license} | {card.patient_ids} "
        f"| {'yes' if card.fetch else 'no'} |\n"
        for card in cards
        for facts in [dict(card_facts(card))]
    )
    return HEAD + rows + "".join(section(card.name) for card in cards)


def section(name: str) -> str:
    """One card: a heading by its name, its facts, its prose one level deeper and without its own title."""
    card = load_card(name)
    facts = "".join(
        f"- **{heading}:** {text}\n" if heading != "Layout" else f"\n```\n{text}\n```\n"
        for heading, text in card_facts(card)
    )
    prose = re.sub(r"\A# .+\n+", "", read_prose(name))
    prose = re.sub(r"^## ", "### ", prose, flags=re.MULTILINE).replace("](../docs/", "](../")
    return f"\n## {name}\n\n{card.pretty_name}\n\n{facts}\n{prose}"


def test_page_of_the_documentation_shows_the_cards():
    path = REPOSITORY / "docs" / "reference" / "data-sets.md"
    if os.environ.get("USVIT_RENEW"):
        path.write_text(page(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == page(), (
        "the cards have changed: USVIT_RENEW=1 python -m pytest tests/data/datasets/test_cards.py -k page"
    )


def test_data_sets_that_hold_the_same_images_are_no_union():
    with pytest.raises(LeakageError, match="busi and breastmnist contain the same images"):
        load_cards("busi+breastmnist")
    assert [card.name for card in load_cards("busi+b")] == ["busi", "b"]
