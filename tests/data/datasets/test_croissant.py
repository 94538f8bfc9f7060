"""Every card is valid Croissant, by MLCommons' own reader."""

import json

import pytest

from usvit.data.datasets import card_names, load_card

mlcroissant = pytest.importorskip("mlcroissant")


@pytest.mark.parametrize("name", card_names())
def test_mlcroissant_takes_each_card_and_its_classes(name, usvit, tmp_path):
    answer = usvit("data", "info", name, "--croissant")
    assert answer.code == 0, answer.err
    (tmp_path / "croissant.json").write_text(answer.out)
    read = mlcroissant.Dataset(jsonld=str(tmp_path / "croissant.json"))
    card = load_card(name)
    assert not read.metadata.ctx.issues.errors and read.metadata.name == name
    assert read.metadata.cite_as == card.citation
    assert bool(read.metadata.license) == (card.license != "unclear")
    if card.classes:
        rows = list(read.records("classes"))
        assert [row["classes/name"] for row in rows] == list(card.classes)
        if None not in card.classes.values():
            assert [row["classes/images"] for row in rows] == list(card.classes.values())


def test_a_file_that_may_be_downloaded_has_its_address_and_checksum():
    from usvit.data.datasets import croissant

    (file,) = croissant(load_card("breastmnist"))["distribution"]
    (stated,) = load_card("breastmnist").fetch.files
    assert file["contentUrl"] == stated.url and file["md5"] == stated.md5 and "sha256" not in file


def test_mlcroissant_refuses_what_is_not_croissant(tmp_path):
    (tmp_path / "croissant.json").write_text(json.dumps({"@type": "sc:Dataset"}))
    with pytest.raises(mlcroissant.ValidationError):
        mlcroissant.Dataset(jsonld=str(tmp_path / "croissant.json"))
