import json

import pytest

from usvit.data.datasets.cards import card_names, load_card
from usvit.resources import data_cards_dir


def test_list_names_every_card_with_counts_and_licence(usvit):
    out = usvit("data", "list").out
    for name in card_names():
        assert f"\n{name:13}" in f"\n{out}"
    assert "1,268 benign, 607 malignant (positive); licence CC-BY-4.0; patient ids: yes; --fetch downloads it" in out
    assert "cannot be read: no images" in out


def test_list_as_json_tells_what_can_be_fetched_and_read(usvit):
    rows = {row["name"]: row for row in json.loads(usvit("data", "list", "--json").out)}
    assert list(rows) == card_names()
    assert rows["bus_bra"]["n_patients"] == 1064
    assert {name for name, row in rows.items() if row["fetch"]} == {"bus_bra", "curated_busi", "breastmnist"}
    assert [name for name, row in rows.items() if row["reader"] is None] == ["oasbud"]


@pytest.mark.parametrize("name", card_names())
def test_info_shows_facts_layout_and_faults(usvit, name):
    card = load_card(name)
    out = usvit("data", "info", name).out
    assert out.startswith(f"{name}: {card.pretty_name}\n")
    for line in card.layout.splitlines():
        assert line in out
    assert "## Known faults" in out
    assert " ".join(card.how_to_get.split()) in " ".join(out.split())


def test_info_as_json_is_the_front_matter(usvit):
    front = json.loads(usvit("data", "info", "breastmnist", "--json").out)
    assert front["labels"] == {"0": "malignant", "1": "benign_or_normal"}
    assert front["same_images_as"] == ["busi", "curated_busi"]
    assert front["task_categories"] == ["image-classification"]


def test_info_reads_a_card_of_one_s_own(usvit, tmp_path):
    path = tmp_path / "mine.md"
    text = (data_cards_dir() / "busi.md").read_text(encoding="utf-8")
    path.write_text(text.replace("name: busi\n", "name: mine\n").replace("# BUSI\n", "# My images\n"), encoding="utf-8")
    out = usvit("data", "info", path).out
    assert out.startswith("mine: BUSI")
    assert "# My images" in out


@pytest.mark.parametrize(("name", "said"), [("bus", "Unknown data set 'bus'"), ("no.md", "no.md cannot be read")])
def test_unknown_card_is_an_error(usvit, name, said):
    answer = usvit("data", "info", name)
    assert answer.code == 2
    assert said in answer.err
