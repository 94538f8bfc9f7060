"""``usvit data audit`` as its user meets it."""

import json

import pytest

from tests.data.conftest import write_busi


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("USVIT_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def root(tmp_path):
    return write_busi(tmp_path / "data" / "Dataset_BUSI_with_GT")


@pytest.mark.slow
def test_the_summary_names_what_was_found_and_where_it_lies(usvit, root, tmp_path):
    (root / "malignant" / "malignant (2).png").write_bytes((root / "benign" / "benign (2).png").read_bytes())
    answer = usvit("data", "audit", "--dataset", "busi", "--data-root", root.parent)
    assert answer.code == 0, answer.err
    assert answer.out.startswith("26 images: ") and "busi      malignant      8        210\n" in answer.out
    assert "- busi: benign: card 437, found 12\n" in answer.out
    assert "Identical images: 1 group (2 images)" in answer.out
    assert "Contradicting labels: 1 group (2 images)" in answer.out
    assert "Keep-list: 24 kept, 2 dropped" in answer.out and "keep-list: audits/busi/keep.csv" in answer.out
    assert (tmp_path / "audits" / "busi" / "audit.html").is_file()


@pytest.mark.slow
def test_json_is_the_file(usvit, root, tmp_path):
    answer = usvit("data", "audit", "--dataset", "busi", "--data-root", root, "--out", tmp_path / "a", "--json")
    assert json.loads(answer.out) == json.loads((tmp_path / "a" / "audit.json").read_text())


@pytest.mark.slow
def test_the_keep_list_is_what_training_accepts(usvit, root, tmp_path):
    (root / "benign" / "benign (3).png").write_bytes((root / "benign" / "benign (2).png").read_bytes())
    usvit("data", "audit", "--dataset", "busi", "--data-root", root, "--out", tmp_path / "a")
    split = ("data", "split", "--dataset", "busi", "--data-root", root, "--folds", 3)
    answer = usvit(*split, "--keep-list", tmp_path / "a" / "keep.csv", "--out", tmp_path / "folds.csv")
    assert answer.code == 0, answer.err
    assert "25 images in 25 groups" in answer.out


@pytest.mark.slow
def test_an_unreadable_file_stops_it_or_is_listed(usvit, root, tmp_path):
    (root / "benign" / "benign (2).png").write_bytes(b"no image")
    audit = ("data", "audit", "--dataset", "busi", "--data-root", root, "--out", tmp_path / "a")
    answer = usvit(*audit)
    assert (answer.code, "benign (2).png" in answer.err) == (2, True)
    assert not (tmp_path / "a").exists()
    answer = usvit(*audit, "--skip-bad")
    assert answer.code == 3
    assert "could not be read" in answer.out
    assert "benign (2).png" in json.loads((tmp_path / "a" / "audit.json").read_text())["skipped"][0]["path"]


def test_mistakes_are_explained_and_nothing_is_written(usvit, root, tmp_path):
    answer = usvit("data", "audit", "--dataset", "bussi")
    assert (answer.code, "busi" in answer.err) == (2, True)
    answer = usvit("data", "audit", "--dataset", "busi", "--data-root", root, "--out", root)
    assert (answer.code, "is not an audit" in answer.err) == (2, True)
    assert usvit("data", "audit").code == 2
    assert not (tmp_path / "audits").exists()
