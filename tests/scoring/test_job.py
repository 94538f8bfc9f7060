"""The whole of batch scoring, on real files, with networks that were really trained."""

import json
import shutil
import socket
import sqlite3
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pydicom
import pytest
from PIL import Image
from pydicom.uid import MPEG4HP41

from benchmarks.messy_export import DAMAGE, Export, dicom, make_export, phantoms
from tests.data.io.videos import encapsulated, grey_loop, stream, written
from tests.dying import kill
from tests.processes import command_line
from tests.processes import run as run_process
from usvit.data.io.dicom import DicomFile
from usvit.files import sha256_of_file

pytestmark = pytest.mark.slow

WHAT_HAPPENS = {
    "truncated": {"truncated"},
    "wrong_length": {"truncated", "damaged"},
    "no_pixels": {"no_pixels"},
    "deflated_bomb": {"too_large"},
    "zip_bomb": {"not_an_image", "archive", "too_large"},
    "empty": {"empty"},
    "text": {"not_an_image"},
    "nan_window": {"damaged", "unsupported_pixels"},
    "dangling_link": {"not_found"},
    "cut_jpeg": {"truncated", "damaged"},
    "noise": {"not_an_image"},
}
TABLES = ("scores.csv", "scores.parquet", "failures.csv", "files.csv", "studies.csv", "patients.csv")


@pytest.fixture(scope="session")
def export(tmp_path_factory) -> Export:
    """60 files, each kind of damage once at least, and a link that makes a loop."""
    folder = tmp_path_factory.mktemp("pacs")
    images = phantoms(folder / "phantoms", 24, 64, seed=11)
    return make_export(folder / "export", images, 60, damaged=0.2)


@pytest.fixture
def score(usvit, run, tmp_path):
    def call(*arguments, out="scores", model=run):
        key = ("--key", tmp_path / "key", "--device", "cpu", "--precision", "fp32", "--workers", 1)
        return usvit("score", "--model", model, "--out", tmp_path / out, *key, *arguments)

    return call


def ids(folder: Path, table: str) -> pd.DataFrame:
    return pd.read_csv(folder / table, dtype=str, keep_default_na=False)


def names_in(folder: Path) -> set[str]:
    """Every file and link below a folder, archives as their members."""
    found = set()
    for path in folder.rglob("*"):
        if path.is_symlink() or path.is_file():
            name = path.relative_to(folder).as_posix()
            if not path.is_symlink() and zipfile.is_zipfile(path):
                found |= {f"{name}!{member}" for member in zipfile.ZipFile(path).namelist()}
            else:
                found.add(name)
    return found


def test_every_file_is_in_exactly_one_of_the_two_tables(score, export, tmp_path):
    said = score("--input", export.folder, "--keep-ids")
    assert said.code == 3
    scores, failures = ids(tmp_path / "scores", "scores.csv"), ids(tmp_path / "scores", "failures.csv")
    scored, failed = set(scores["path"]), set(failures["path"])
    assert scored == {path.relative_to(export.folder).as_posix() for path in export.good}
    assert scored | failed == names_in(export.folder)
    assert not scored & failed and len(failures) == len(failed)
    assert len(scores) == export.frames and not scores.duplicated(["item_id", "frame"]).any()
    codes = dict(zip(failures["path"], failures["code"], strict=True))
    for path, kind in export.bad.items():
        name = path.relative_to(export.folder).as_posix()
        code = codes.get(name) or codes[next(one for one in codes if one.startswith(name + "!"))]
        assert code in WHAT_HAPPENS[kind], (kind, code)
    assert set(export.bad.values()) == set(DAMAGE)
    assert [codes[link.relative_to(export.folder).as_posix()] for link in export.links] == ["loop"]
    summary = json.loads((tmp_path / "scores" / "summary.json").read_text())
    assert summary["counts"]["frames_scored"] == export.frames
    assert summary["counts"]["failures"] == len(failures)
    assert not [path for path in (tmp_path / "scores").iterdir() if path.name.startswith(("journal", "."))]


def test_nothing_that_tells_of_a_person_is_in_any_output(score, export, tmp_path):
    said = score("--input", export.folder, "--sr", "--sc", "--gsps", "--overlays", "--thumbnails")
    out = tmp_path / "scores"
    haystack = [said.out, said.err, pd.read_parquet(out / "scores.parquet").to_csv()]
    haystack += [str(path.relative_to(out)) for path in out.rglob("*")]
    texts = [text.encode() for text in haystack]
    texts += [path.read_bytes() for path in out.rglob("*") if path.is_file()]
    secrets = export.secrets | {path.name for path in (*export.good, *export.bad)}
    for path in (*export.good, *export.bad):
        secrets |= set(path.relative_to(export.folder).parts[:1])
    assert len(secrets) > 150 and len(list((out / "dicom").iterdir())) > 40
    forms = {secret.encode(code) for secret in secrets for code in ("utf-8", "utf-16-le")} | {b"Nov\xe1kov\xe1"}
    assert [form for form in forms if any(form in text for text in texts)] == []
    assert said.code == 3


def test_the_sides_of_a_table_of_inputs_make_breasts(score, tmp_path):
    phantoms(tmp_path / "phantoms", 4, 64, seed=5)
    images = sorted(path for path in (tmp_path / "phantoms").rglob("*.png") if not path.stem.endswith("_mask"))
    rows = [f"{path},{who},{side}" for path, who, side in zip(images, "aaab", ("l", "R", "left", ""), strict=False)]
    (tmp_path / "inputs.csv").write_text("\n".join(["path,patient_id,side", *rows]))
    assert score("--input", tmp_path / "inputs.csv").code == 0
    scores, breasts = (ids(tmp_path / "scores", name) for name in ("scores.csv", "breasts.csv"))
    assert scores["side"].tolist() == ["left", "right", "left", ""]
    patient = scores["patient_id"].iloc[0]
    assert breasts["breast_id"].tolist() == [f"{patient}/left", f"{patient}/right"]
    assert breasts["n_files"].tolist() == ["2", "1"] and set(breasts["patient_id"]) == {patient}
    mean = scores["calibrated_malignant"].astype(float)[[0, 2]].mean()
    assert float(breasts["mean_calibrated_malignant"].iloc[0]) == pytest.approx(mean, abs=1e-8)
    assert json.loads((tmp_path / "scores" / "summary.json").read_text())["counts"]["files_without_breast"] == 1
    assert '"Breast"' in (tmp_path / "scores" / "scores.html").read_text()


def test_with_keep_ids_the_same_search_finds_them(score, export, tmp_path):
    score("--input", export.folder, "--keep-ids")
    assert "PID0000001" in (tmp_path / "scores" / "scores.csv").read_text()


def test_scores_are_those_of_the_cross_validation(score, run, small_phantom, tmp_path):
    for fold in range(3):
        said = score("--input", small_phantom, "--fold", fold, "--keep-ids", out=f"scores-{fold}")
        assert said.code == 3  # masks are images, too, but phantom.csv is none
        scores = pd.read_parquet(tmp_path / f"scores-{fold}" / "scores.parquet")
        scores["image_id"] = scores["path"].map(lambda path: Path(path).stem)
        predicted = pd.read_csv(run / f"fold-{fold}" / "predictions.csv").query("part == 'test'")
        both = predicted.merge(scores, on="image_id", suffixes=("", "_scored"), validate="one_to_one")
        assert len(both) == len(predicted) > 12
        for name in ("benign", "malignant", "normal"):
            assert np.abs(both[f"prob_{name}"] - both[f"prob_{name}_scored"]).max() < 1e-6
        assert not both["seen"].any()
        metadata = json.loads((run / f"fold-{fold}" / "model.json").read_text())
        trained = set(metadata["seen_sha256"]["train"])
        assert set(scores["pixel_sha256"][scores["seen"]]) >= trained


@pytest.mark.slow
def test_a_job_that_is_killed_twice_ends_as_one_that_was_not(run, export, tmp_path):
    shutil.copy(Path(make_key(tmp_path)), tmp_path / "key")

    def arguments(out):
        command = ["score", "--model", str(run), "--input", str(export.folder), "--out", str(tmp_path / out)]
        command += ["--key", str(tmp_path / "key"), "--batch-size", "4", "--sr", "--thumbnails"]
        return [*command, "--device", "cpu", "--precision", "fp32", "--workers", "1"]

    def finish(out):
        return run_process(command_line, *arguments(out)).returncode

    assert finish("whole") == 3
    for where in ("torn", "after"):
        kill(arguments("killed"), export.frames // 10, where)  # about a quarter of the batches
    assert 0.25 < progress_of(tmp_path / "killed") / export.frames < 0.9
    assert finish("killed") == 3
    for name in TABLES:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    written = {path.name for path in (tmp_path / "whole" / "dicom").iterdir()}
    assert written == {path.name for path in (tmp_path / "killed" / "dicom").iterdir()}


def make_key(folder: Path) -> Path:
    from usvit.pseudonyms import Pseudonyms

    Pseudonyms.of_key(folder / "made")
    return folder / "made"


def progress_of(out: Path) -> int:
    """Rows that a killed job has committed."""
    with sqlite3.connect(f"file:{out / 'journal.sqlite'}?mode=ro", uri=True) as connection:
        return int(connection.execute("SELECT count(*) FROM rows").fetchone()[0])


def test_a_finished_job_is_not_done_again_and_another_is_refused(score, export, tmp_path):
    folder = sorted(export.folder.iterdir())[0]
    first = score("--input", folder)
    before = {path.name: sha256_of_file(path) for path in (tmp_path / "scores").iterdir()}
    again = score("--input", folder)
    assert again.code == first.code and again.out == first.out
    other = score("--input", folder, "--flip")
    assert other.code == 2 and "differs in: flip" in other.err
    (tmp_path / "key").unlink()
    strange = score("--input", folder)
    assert strange.code == 2 and "another" in strange.err and "key" in strange.err
    assert {path.name: sha256_of_file(path) for path in (tmp_path / "scores").iterdir()} == before


def test_more_files_on_resume_are_scored_too(score, export, tmp_path, monkeypatch):
    folder = tmp_path / "growing"
    folder.mkdir()
    good = [path for path in export.good if path.suffix == ".dcm"]
    shutil.copy(good[0], folder / "a.dcm")
    request = ("--input", folder)

    def stop(*_, **__):
        raise KeyboardInterrupt  # as Ctrl-C does; workers of pytest-xdist ignore the signal itself

    with monkeypatch.context() as stopped:
        stopped.setattr("usvit.scoring.results.write_tables", stop)
        said = score(*request)
    assert said.code not in (0, 3) and "the same command resumes" in said.err.lower()
    shutil.copy(good[1], folder / "0.dcm")
    (folder / "a.dcm").unlink()
    assert score(*request).code == 0
    assert len(ids(tmp_path / "scores", "scores.csv")["item_id"].unique()) == 2


def test_archives_and_lists_give_the_scores_of_their_files(score, export, tmp_path):
    good = [path for path in export.good if path.suffix == ".dcm"][:4]
    with zipfile.ZipFile(tmp_path / "export.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number, path in enumerate(good):
            archive.write(path, f"x/{number}")
    rows = [{"path": str(path), "patient_id": "one", "study_id": "first"} for path in good]
    pd.DataFrame(rows).to_csv(tmp_path / "list.csv", index=False)
    assert score("--input", tmp_path / "export.zip", out="zipped").code == 0
    assert score("--input", tmp_path / "list.csv", out="listed").code == 0
    zipped, listed = (pd.read_parquet(tmp_path / name / "scores.parquet") for name in ("zipped", "listed"))
    assert sorted(zipped["prob_malignant"]) == sorted(listed["prob_malignant"])
    assert listed["patient_id"].nunique() == 1 and (listed["patient_id"] != zipped["patient_id"]).all()


def test_frames_are_chosen_as_asked(score, export, tmp_path):
    loop = next(path for path in export.good if is_loop(path))
    for policy, expected in (("all", [0, 1, 2]), ("middle", [1]), ("every:2", [0, 2])):
        out = f"scores-{policy.replace(':', '')}"
        assert score("--input", loop, "--frames", policy, out=out).code == 0
        assert list(pd.read_csv(tmp_path / out / "scores.csv")["frame"]) == expected
    assert score("--input", loop, "--frames", "top:2", out="top").code == 0
    assert len(pd.read_csv(tmp_path / "top" / "scores.csv")) == 2
    wrong = score("--input", loop, "--frames", "some", out="wrong")
    assert wrong.code == 2 and "every:K" in wrong.err and not (tmp_path / "wrong").exists()


def test_videos_are_scored_by_frames_as_multi_frame_dicom_is(score, tmp_path):
    folder = tmp_path / "loops"
    folder.mkdir()
    (folder / "a.mp4").write_bytes(stream("h264.mp4"))
    (folder / "IM1").write_bytes(encapsulated(stream("h264.h264"), MPEG4HP41, 7))
    (folder / "b.avi").write_bytes(written(tmp_path / "b.avi", "HFYU", grey_loop(2)))
    assert score("--input", folder, "--frames", "every:3", "--sr", out="scored").code == 3
    table = pd.read_csv(tmp_path / "scored" / "scores.csv")
    assert [*table["frame"]] == [0, 3, 6] * 2 and set(table["n_frames"]) == {7}
    dicom, video = table[table["kind"] == "dicom"], table[table["kind"] == "picture"]
    assert [*dicom["pixel_sha256"]] == [*video["pixel_sha256"]]
    close = partial(pytest.approx, abs=1e-7)  # the place of an image in a batch changes the last bits
    assert [*dicom["prob_malignant"]] == close([*video["prob_malignant"]])
    assert [*pd.read_csv(tmp_path / "scored" / "failures.csv")["code"]] == ["unsupported_codec"]
    (report,) = (tmp_path / "scored").rglob("*.dcm")
    text = str(pydicom.dcmread(report))
    assert "Referenced Frame Number" in text and "1.2.3.4" not in text  # the ids are pseudonyms
    again = score("--input", folder / "a.mp4", "--frames", "every:3", out="again")
    assert again.code == 0
    assert [*pd.read_csv(tmp_path / "again" / "scores.csv")["prob_malignant"]] == close([*video["prob_malignant"]])


def is_loop(path: Path) -> bool:
    try:
        with DicomFile(path) as file:
            return file.facts.frames == 3
    except Exception:
        return False


def test_an_image_unlike_the_training_data_is_flagged_and_with_abstain_not_decided(score, tmp_path):
    folder = tmp_path / "odd"
    folder.mkdir()
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (80, 80, 3), dtype=np.uint8)
    Image.fromarray(colours).save(folder / "noise.png")
    Image.fromarray(np.zeros((80, 80), np.uint8)).save(folder / "blank.png")
    assert score("--input", folder, out="plain").code == 0
    assert score("--input", folder, "--abstain", out="abstaining").code == 0
    plain, abstaining = (pd.read_parquet(tmp_path / name / "scores.parquet") for name in ("plain", "abstaining"))
    assert plain["unusual"].all() and (plain["novelty"] > 1).all()
    assert (plain["decision"] != "").all() and (abstaining["decision"].fillna("") == "").all()
    assert (plain["prob_malignant"] == abstaining["prob_malignant"]).all()
    assert any("blank" in flags for flags in plain["flags"])


def test_the_way_back_is_written_for_the_user_alone(score, export, tmp_path):
    folder = sorted(export.folder.iterdir())[0]
    first = score("--input", folder, "--link", tmp_path / "mine.csv")
    link = pd.read_csv(tmp_path / "mine.csv", dtype=str)
    scores = ids(tmp_path / "scores", "scores.csv")
    assert set(scores["item_id"]) <= set(link["item_id"])
    assert (tmp_path / "mine.csv").stat().st_mode & 0o077 == 0
    later = score("--input", folder, "--link", tmp_path / "later.csv")  # the job is finished
    assert later.code == first.code and (tmp_path / "later.csv").read_bytes() == (tmp_path / "mine.csv").read_bytes()
    (tmp_path / "later.csv").write_text('"item_id","name","path"\n')
    score("--input", folder, "--link", tmp_path / "later.csv")  # it may know files that are gone by now
    assert len((tmp_path / "later.csv").read_text().splitlines()) == 1
    inside = score("--input", folder, "--link", tmp_path / "new" / "mine.csv", out="new")
    assert inside.code == 2 and not (tmp_path / "new").exists()


def test_what_is_wrong_with_a_request_is_said_before_anything_is_written(score, run, export, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "no_model").mkdir()
    broken = tmp_path / "broken"
    shutil.copytree(run / "fold-0", broken)
    metadata = json.loads((broken / "model.json").read_text())
    metadata["classes"] = ["benign", "malignant"]
    (broken / "model.json").write_text(json.dumps(metadata))
    cases = [
        (score("--input", export.folder, model=tmp_path / "no_model"), "not a run of usvit"),
        (score("--input", export.folder, model=broken), "model.json"),
        (score("--input", empty), "nothing to score"),
        (score("--input", tmp_path / "gone"), "does not exist"),
        (score("--input", export.folder, "--operating-point", "sensitive"), "sensitive"),
        (score("--input", export.folder, "--fold", 7), "7"),
        (score("--input", export.folder, "--engine", "dask"), "dask"),
        (score("--input", export.folder, "--cpus", 2), "--engine ray"),
        (score("--input", export.folder, "--batch-size", 0), "batch-size"),
        (score("--input", export.folder, "--calibration", tmp_path / "none.json"), "none.json"),
    ]
    for said, word in cases:
        assert said.code == 2 and word in said.err and "Traceback" not in said.err, (word, said.err)
    assert not (tmp_path / "scores").exists()


def test_a_full_disk_is_told_and_the_job_resumes(usvit, run, export, small_disk, tmp_path):
    filler = small_disk / "filler"
    filler.write_bytes(bytes(900_000))
    command = ("score", "--model", run, "--input", export.folder, "--out", small_disk / "scores", "--key")
    said = usvit(*command, tmp_path / "key", "--device", "cpu", "--workers", 1)
    assert said.code == 2 and "No space left" in said.err
    assert not (small_disk / "scores" / "scores.csv").exists()
    filler.unlink()


def test_nothing_touches_the_network(run, export, tmp_path):
    program = (
        "import socket, sys\n"
        "real = socket.socket.connect\n"
        "def refuse(self, address):\n"
        "    if self.family != socket.AF_UNIX: raise RuntimeError('network')\n"
        "    return real(self, address)\n"
        "socket.socket.connect = refuse\n"
        "from usvit.cli import main\n"
        "if __name__ == '__main__':\n"
        "    main()\n"
    )
    (tmp_path / "offline.py").write_text(program)
    folder = sorted(export.folder.iterdir())[0]
    command = [sys.executable, tmp_path / "offline.py", "score", "--model", run, "--input", folder, "--key"]
    command += [tmp_path / "key", "--out", tmp_path / "scores", "--device", "cpu"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode in (0, 3), done.stderr
    assert (tmp_path / "scores" / "scores.html").is_file()
    assert socket.socket.connect  # this process's own is as it was


@pytest.mark.slow
def test_ray_gives_the_same_tables(score, export, tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed (pip install 'usvit[ray]')")
    assert score("--input", export.folder, out="local").code == 3
    said = score("--input", export.folder, "--engine", "ray", "--cpus", 1, out="ray")
    assert said.code == 3, said.err
    for name in TABLES:
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes(), name


def test_what_dicom_and_png_of_one_image_give_is_the_same(score, export, tmp_path):
    image = phantoms(tmp_path / "phantoms", 24, 64, seed=11)[0]
    folder = tmp_path / "pair"
    folder.mkdir()
    (folder / "a").write_bytes(dicom(image, "grey", "P", "N"))
    (folder / "b").write_bytes(dicom(image, "jpeg2000", "P", "N"))
    Image.fromarray(image).save(folder / "c.png")
    assert score("--input", folder).code == 0
    scores = pd.read_parquet(tmp_path / "scores" / "scores.parquet")
    assert scores["prob_malignant"].nunique() == 1 and scores["pixel_sha256"].nunique() == 1
    assert scores["patient_id"].nunique() == 1 and scores["instance_id"].nunique() == 2


def test_the_users_key_and_link_table_among_the_images_are_no_images(tmp_path):
    from usvit.scoring.items import ScoringItem
    from usvit.scoring.job import _without_own

    names = ("IM1", "key", "link.csv", f".link.csv.partial-{'0' * 32}", "not my key", "a/key")
    items = [ScoringItem(name, str(tmp_path / name)) for name in names]
    left = _without_own(items, tmp_path / "key", tmp_path / "link.csv")
    assert [item.name for item in left] == ["IM1", "not my key", "a/key"]
