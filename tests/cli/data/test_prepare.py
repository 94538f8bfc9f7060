import hashlib
import io
import json
import re
import shutil
import zipfile

import numpy as np
import pytest
import yaml
from PIL import Image

from tests.data.file_server import FileServer, Reply
from usvit.data.datasets import download
from usvit.data.datasets.manifest_file import read_manifest


def picture(seed: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (64, 64), dtype=np.uint8)).save(out, "png")
    return out.getvalue()


@pytest.fixture
def busi_part(tmp_path):
    """Two images of each class, in BUSI's layout."""
    root = tmp_path / "part"
    for number, label in enumerate(("benign", "malignant", "normal")):
        (root / label).mkdir(parents=True)
        for image in (1, 2):
            (root / label / f"{label} ({image}).png").write_bytes(picture(10 * number + image))
            Image.new("L", (64, 64), 255).save(root / label / f"{label} ({image})_mask.png")
    return root


def own_card(tmp_path, reader: str = "folder", **changes: object) -> str:
    """A user's card for what ``busi_part`` holds."""
    card = {
        **{"name": "mine", "pretty_name": "Mine", "license": "unclear", "citation": "none", "host": "here"},
        **{"classes": {"benign": 2, "malignant": 2, "normal": 2}, "positive_class": "malignant", "n_masks": 6},
        **{"patient_ids": "no", "patient_ids_from": "none", "reader": reader, "layout": "x", "how_to_get": "y"},
    }
    path = tmp_path / "mine.md"
    path.write_text(f"---\n{yaml.safe_dump(card | changes)}---\n# Mine\n", encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_checked_manifest_is_written_and_can_be_read(usvit, tmp_path, busi_part):
    out = tmp_path / "m.parquet"
    answer = usvit("data", "prepare", own_card(tmp_path), "--data-root", busi_part, "--out", out)
    assert answer.code == 0, answer.err
    assert "mine: 6 images (2 benign, 2 malignant, 2 normal), 6 masks, no patient ids" in answer.out
    assert "6 images to use, in 6 groups" in answer.out
    manifest = read_manifest(out, {})
    assert manifest.sha256()[:12] in answer.out
    assert manifest.roots == {"mine": busi_part}
    assert manifest.usable.label.value_counts().to_dict() == {"benign": 2, "malignant": 2, "normal": 2}


@pytest.mark.slow
def test_file_s_default_name_is_that_of_the_data_sets(usvit, tmp_path, busi_part, small_phantom, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = usvit(
        *("data", "prepare", f"phantom+{own_card(tmp_path)}"),
        *("--data-root", f"mine={busi_part}", "--data-root", f"phantom={small_phantom}"),
    )
    assert answer.code == 0, answer.err
    assert (tmp_path / "manifests" / "phantom+mine.parquet").is_file()
    assert "phantom: 48 images" in answer.out


def test_json_holds_what_was_found(usvit, tmp_path, busi_part):
    out = tmp_path / "m.parquet"
    answer = usvit("data", "prepare", own_card(tmp_path), "--data-root", busi_part, "--out", out, "--json")
    summary = json.loads(answer.out)
    assert summary["manifest"] == str(out)
    assert summary["written"] is True
    assert summary["sha256"] == read_manifest(out, {}).sha256()
    assert summary["datasets"]["mine"] == {
        **{"root": str(busi_part), "license": "unclear", "images": 6, "masks": 6, "patients": 0, "card_mismatch": []},
        **{"classes": {"benign": 2, "malignant": 2, "normal": 2}},
    }
    assert (summary["n_images"], summary["excluded"], summary["skipped"]) == (6, [], [])


@pytest.mark.slow
def test_wrong_counts_name_each_difference_and_nothing_is_written(usvit, tmp_path, busi_part):
    out = tmp_path / "m.parquet"
    answer = usvit("data", "prepare", "busi", "--data-root", busi_part, "--out", out)
    assert answer.code == 2
    for line in ("benign: card 437, found 2", "malignant: card 210, found 2", "normal: card 133, found 2"):
        assert f"  {line}\n" in answer.err
    assert "masks: card 798, found 6" in answer.err
    assert "--accept-counts" in answer.err
    assert not out.exists()


def test_part_of_a_release_is_taken_when_asked_and_marked(usvit, tmp_path, busi_part):
    out = tmp_path / "m.parquet"
    answer = usvit("data", "prepare", "busi", "--data-root", busi_part, "--out", out, "--accept-counts")
    assert answer.code == 0, answer.err
    assert "DIFFERS FROM THE CARD, accepted: benign: card 437, found 2; malignant" in answer.out
    assert len(read_manifest(out, {}).usable) == 6


@pytest.mark.slow
def test_same_manifest_again_is_said_and_another_is_not_overwritten(usvit, tmp_path, busi_part):
    command = ("data", "prepare", own_card(tmp_path), "--data-root", busi_part, "--out", tmp_path / "m.parquet")
    usvit(*command)
    before = (tmp_path / "m.parquet").stat()
    answer = usvit(*command)
    assert answer.code == 0
    assert "(unchanged)" in answer.out
    (busi_part / "benign" / "benign (1).png").write_bytes(picture(99))
    answer = usvit(*command)
    assert answer.code == 2
    assert "m.parquet holds something else" in answer.err
    after = (tmp_path / "m.parquet").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.slow
def test_same_images_elsewhere_are_another_manifest(usvit, tmp_path, busi_part):
    card, out = own_card(tmp_path), tmp_path / "m.parquet"
    usvit("data", "prepare", card, "--data-root", busi_part, "--out", out)
    shutil.move(busi_part, tmp_path / "moved")
    answer = usvit("data", "prepare", card, "--data-root", tmp_path / "moved", "--out", out)
    assert answer.code == 2
    assert "holds something else" in answer.err


def test_foreign_file_is_not_overwritten(usvit, tmp_path, busi_part):
    out = tmp_path / "thesis.docx"
    out.write_text("years of work")
    answer = usvit("data", "prepare", own_card(tmp_path), "--data-root", busi_part, "--out", out)
    assert answer.code == 2
    assert out.read_text() == "years of work"


def test_patient_with_two_labels_is_refused_at_patient_level(usvit, tmp_path, busi_part):
    rows = [f"{label}/{label} ({n}).png,{label},p{n}" for label in ("benign", "malignant") for n in (1, 2)]
    (busi_part / "list.csv").write_text("\n".join(["path,label,patient_id", *rows]) + "\n")
    card = own_card(
        *(tmp_path, "table"), label_level="patient", patient_ids="yes", classes={"benign": 2, "malignant": 2}, n_masks=0
    )
    answer = usvit("data", "prepare", card, "--data-root", busi_part, "--out", tmp_path / "m.parquet")
    assert answer.code == 2
    assert re.search(r"of the data set mine has two labels", answer.err)
    assert "'p1'" not in answer.err  # the data set is private: its patients go by pseudonyms
    assert not (tmp_path / "m.parquet").exists()


@pytest.mark.slow
def test_ids_that_are_possibly_of_one_patient_are_warned_of_without_being_printed(usvit, tmp_path, busi_part):
    """A spreadsheet wrote 07 as 7, and somebody wrote one patient's id in capitals."""
    files = [f"{label}/{label} ({n}).png,{label}" for label in ("benign", "malignant") for n in (1, 2)]
    card = own_card(
        *(tmp_path, "table"), patient_ids="yes", classes={"benign": 2, "malignant": 2}, n_masks=0, label_level="image"
    )

    def prepared(*ids: str):
        rows = [f"{file},{patient}" for file, patient in zip(files, ids, strict=True)]
        (busi_part / "list.csv").write_text("\n".join(["path,label,patient_id", *rows]) + "\n")
        out = tmp_path / f"{len(list(tmp_path.glob('*.parquet')))}.parquet"
        answer = usvit("data", "prepare", card, "--data-root", busi_part, "--out", out)
        assert answer.code == 0, answer.err
        return answer, read_manifest(out, {})

    answer, manifest = prepared("kovar07", "kovar7", "SMID2", "smid2")
    assert "the data set mine has 4 patient ids that differ only by case" in answer.err
    assert "possibly 2 patients" in answer.err
    assert not any(name in (answer.out + answer.err).casefold() for name in ("kovar", "smid"))
    assert manifest.usable.group_id.nunique() == 4  # warned of, not joined: only the owner knows
    answer, _ = prepared("kovar7", "kovar8", "smid2", "smid3")
    assert "differ only by case" not in answer.out + answer.err


@pytest.mark.slow
def test_damaged_file_stops_or_is_left_out_and_listed(usvit, tmp_path, busi_part):
    card, out = own_card(tmp_path), tmp_path / "m.parquet"
    (busi_part / "benign" / "benign (1).png").write_bytes(picture(1)[:100])
    command = ("data", "prepare", card, "--data-root", busi_part, "--out", out)
    answer = usvit(*command)
    assert answer.code == 2
    assert re.search(r"Cannot use the image file [^ ]+: .*'usvit data link' shows which", answer.err)
    assert "benign (1).png" not in answer.err  # the data set is private
    answer = usvit(*command, "--skip-bad")
    assert answer.code == 2
    assert "benign: card 2, found 1" in answer.err
    assert "Skipped, because they cannot be read: 1 files" in answer.err
    assert not out.exists()
    answer = usvit(*command, "--skip-bad", "--accept-counts")
    assert answer.code == 3
    assert "skipped: " in answer.out
    assert len(read_manifest(out, {}).usable) == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bus_bra"], "The folder of BUS-BRA"),
        (["busi", "--data-root", "nowhere"], "nowhere does not exist"),
        (["b", "--data-root", "."], "Expected layout (data card 'b')"),
        (["oasbud", "--data-root", "."], "cannot be read: it holds raw radio-frequency signals"),
        (["busy"], "Unknown data set 'busy'. Nearest: busi"),
        (["busi+busi"], "contains 'busi' twice"),
        (["b", "--fetch", "--data-root", "."], "By signed agreement"),
        (["phantom", "--fetch"], "usvit cannot download usvit phantom"),
        (["curated_busi", "--fetch"], "The target folder of Curated BUSI"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_explained(usvit, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("USVIT_DATA", raising=False)
    answer = usvit("data", "prepare", *arguments)
    assert answer.code == 2
    assert said in answer.err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def zenodo(monkeypatch):
    """Curated BUSI in small, as Zenodo would offer it."""
    monkeypatch.setattr(download, "WAITS", (0.0, 0.0, 0.0))
    monkeypatch.setenv("no_proxy", "*")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number, label in enumerate(("benign", "malignant", "normal")):
            archive.writestr(f"Curated BUSI/images/{label}_id_1.png", picture(number))
            archive.writestr(f"Curated BUSI/masks/{label}_id_1_mask.png", picture(10 + number))
    body = out.getvalue()
    with FileServer() as server:
        monkeypatch.setenv("USVIT_ZENODO", server.url(""))
        md5 = hashlib.md5(body).hexdigest()
        content = server.serve("/content", Reply(body, breaks_after=4_000, etag='"1"'), Reply(body, etag='"1"'))
        entry = {"key": "Curated BUSI.zip", "size": len(body), "checksum": f"md5:{md5}", "links": {"self": content}}
        server.serve("/api/records/19047974", Reply(json.dumps({"files": [entry]}).encode()))
        yield server


@pytest.mark.slow
def test_fetched_data_are_read_at_once_and_found_later(usvit, tmp_path, zenodo, monkeypatch):
    root, first, second = tmp_path / "data", tmp_path / "a.parquet", tmp_path / "b.parquet"
    command = ("data", "prepare", "curated_busi", "--accept-counts")
    answer = usvit(*command, "--fetch", "--data-root", root, "--out", first)
    assert answer.code == 0, answer.err
    assert "licence CC-BY-4.0; from https://zenodo.org/records/19047974" in answer.err
    assert "closed the connection at 4,000" in answer.err
    assert "curated_busi: 3 images (1 benign, 1 malignant, 1 normal), 3 masks" in answer.out
    monkeypatch.setenv("USVIT_DATA", str(root))
    monkeypatch.delenv("USVIT_ZENODO")
    answer = usvit(*command, "--fetch", "--out", second)
    assert answer.code == 0, answer.err
    assert "nothing is downloaded" in answer.err
    assert read_manifest(first, {}).sha256() == read_manifest(second, {}).sha256()


def test_fetched_data_that_are_not_what_the_card_says_are_an_error(usvit, tmp_path, zenodo):
    answer = usvit("data", "prepare", "curated_busi", "--fetch", "--data-root", tmp_path / "data")
    assert answer.code == 2
    assert "benign: card 222, found 1" in answer.err
