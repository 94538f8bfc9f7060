"""The 127 coarse classes of ImageNet: the rule on a made-up WordNet, and on the real one where it is installed."""

import os
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from usvit.errors import UsvitError
from usvit.upstream.sources.imagenet import wnids
from usvit.upstream.sources.open import _coarse_of_file
from usvit.upstream.sources.wordnet import coarse_imagenet, coarser, read_nouns

TREE = {  # synset -> its word and its parents
    "n00000001": ("entity", ()),
    "n00000010": ("animal", ("n00000001",)),
    "n00000020": ("Pet", ("n00000010",)),
    "n00000030": ("dog", ("n00000010", "n00000020")),
    "n00000031": ("beagle", ("n00000030",)),
    "n00000032": ("toy_dog", ("n00000030",)),
    "n00000033": ("pug", ("n00000032",)),
    "n00000040": ("hamster", ("n00000020",)),
    "n00000050": ("car", ("n00000001",)),
    "n00000051": ("taxi", ("n00000050",)),
}


def written(path, tree=TREE):
    """``data.noun`` as ``wndb(5WN)`` describes it, with a licence, other pointers and glosses."""
    lines = ["  1 This software and database is being provided to you, the LICENSEE, by  "]
    for synset, (word, parents) in tree.items():
        pointers = [f"@ {parent[1:]} n 0000" for parent in parents] + ["#m 00000001 n 0000", "@i 00000001 n 0000"]
        lines.append(
            f"{synset[1:]} 05 n 02 {word} 0 other_word 0 {len(pointers):03d} {' '.join(pointers)} | a | gloss  "
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def test_parents_below_other_parents_become_the_highest_of_them(tmp_path):
    nouns = read_nouns(written(tmp_path / "data.noun"))
    assert nouns.upwards("n00000033") == ["n00000033", "n00000032", "n00000030", "n00000010", "n00000001"]
    # The parents are dog, toy dog, pet and car. Toy dog is below dog, whose first parent is animal, not pet.
    assert coarser(["n00000031", "n00000033", "n00000040", "n00000051"], nouns) == {
        "n00000031": "n00000030",
        "n00000033": "n00000030",
        "n00000040": "n00000020",
        "n00000051": "n00000050",
    }
    assert set(coarser(["n00000030", "n00000031", "n00000040"], nouns).values()) == {"n00000010"}


@pytest.mark.parametrize("content", ["", "name,value\n1,2\n", "00000003 05 n 01 dog 0 001 @ 00000009 n 0000 | gone\n"])
def test_files_that_are_not_wordnet_are_refused(tmp_path, content):
    (tmp_path / "data.noun").write_text(content)
    with pytest.raises(UsvitError, match=r"is not the file data\.noun of WordNet"):
        read_nouns(tmp_path / "data.noun")


def test_another_wordnet_writes_nothing(tmp_path):
    with pytest.raises(UsvitError, match=r"not in this WordNet .*those of WordNet 3\.0"):
        coarse_imagenet(written(tmp_path / "data.noun"), tmp_path / "coarse.csv")
    flat = {"n00000001": ("entity", ())} | dict.fromkeys(wnids(), ("thing", ("n00000001",)))
    with pytest.raises(UsvitError, match="gives 1 coarse classes that are not the 127"):
        coarse_imagenet(written(tmp_path / "data.noun", flat), tmp_path / "coarse.csv")
    assert not (tmp_path / "coarse.csv").exists()


WORDNET = Path(os.environ.get("USVIT_WORDNET", "/usr/share/wordnet/data.noun"))


@pytest.mark.slow
@pytest.mark.skipif(not WORDNET.is_file(), reason="WordNet 3.0 (Debian: wordnet-base) is not installed")
def test_wordnet_gives_the_127_classes_of_the_paper(tmp_path):
    """Huh et al. 2016: 127 classes, of which the largest are whole branches; the hash is that of the published ones."""
    out = tmp_path / "imagenet127.csv"
    assert coarse_imagenet(WORDNET, out) == 127
    table = pd.read_csv(out)
    assert table["class"].tolist() == list(wnids())
    assert Counter(table.name).most_common(1)[0][0] == "mammal"

    class Source:
        name, classes, levels = "imagenet", wnids(), {}

    assert len(set(_coarse_of_file(out, Source()))) == 127
    with pytest.raises(UsvitError, match="exists"):
        coarse_imagenet(WORDNET, out)
