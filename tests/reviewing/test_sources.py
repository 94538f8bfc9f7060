"""Cases from every source: folders, DICOM, runs, data sets and scored folders."""

import io
import json
import zipfile

import numpy as np
import pytest
from PIL import Image

from tests.data.conftest import speckle, write_dicom
from tests.reviewing.studies import Reader, opened, served, write_images, write_study
from usvit.errors import UsvitError


def cases_of(answers):
    return answers.rows("SELECT * FROM cases ORDER BY name")


def test_a_folder_gives_one_case_for_each_image_and_leaves_out_other_files(tmp_path, caplog):
    study = write_study(tmp_path)
    (tmp_path / "images" / "notes.txt").write_text("nothing")
    with opened(study) as answers:
        assert [row["truth"] for row in cases_of(answers)] == ["benign", "malignant"] * 3
    assert "1 file cannot be read as an image and is left out" in caplog.text


def test_a_loop_is_one_image_of_many_frames(tmp_path):
    loop = np.stack([speckle(k, 40, 60) for k in range(5)])
    write_dicom(tmp_path / "images" / "IM1", loop, FrameTime="40")
    (tmp_path / "study.yaml").write_text("source: {images: [images]}\n")
    with served(tmp_path / "study.yaml") as server:
        reader = Reader(server, "reader")
        (image,) = reader.state["task"]["images"]
        assert (image["frames"], image["frame_ms"], image["width"], image["height"]) == (5, 40, 60, 40)
        shown = [reader.client.get(f"/image/{image['id']}/{k}.png") for k in range(6)]
        assert [one.status_code for one in shown] == [200] * 5 + [403]
        assert (np.array(Image.open(io.BytesIO(shown[3].content))) == loop[3]).all()


def test_dicom_without_a_tissue_region_is_a_warning(tmp_path, caplog):
    write_dicom(tmp_path / "images" / "IM1", speckle(0, 40, 60))
    (tmp_path / "study.yaml").write_text("source: {images: [images]}\n")
    with opened(tmp_path / "study.yaml"):
        assert "1 DICOM image of 1 do not describe their tissue region" in caplog.text


def test_the_images_of_a_patient_are_one_case(tmp_path):
    for k in range(4):
        write_dicom(tmp_path / "images" / f"IM{k}", speckle(k, 40, 60), PatientID=f"P{k // 2}")
    (tmp_path / "study.yaml").write_text("source: {images: [images], unit: patient}\n")
    with opened(tmp_path / "study.yaml") as answers:
        assert [row["name"] for row in cases_of(answers)] == ["P0", "P1"]
        assert answers.rows("SELECT COUNT(*) AS n FROM images")[0]["n"] == 4


def test_members_of_an_archive_are_read_where_they_are(tmp_path):
    images = write_images(tmp_path)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for picture in sorted(images.iterdir()):
            archive.write(picture, picture.name)
    (tmp_path / "study.yaml").write_text("source: {images: [all.zip]}\n")
    with served(tmp_path / "study.yaml") as server:
        reader = Reader(server, "reader")
        (image,) = reader.state["task"]["images"]
        assert reader.client.get(f"/image/{image['id']}/0.png").status_code == 200


def test_a_data_set_gives_its_labels_patients_and_masks(tmp_path, small_phantom):
    (tmp_path / "study.yaml").write_text(
        f"source: {{dataset: phantom, data_root: {small_phantom}, unit: patient, cases: 5}}\n"
    )
    with opened(tmp_path / "study.yaml") as answers:
        rows = cases_of(answers)
        assert len(rows) == 5 and {row["truth"] for row in rows} <= {"benign", "malignant", "normal"}
        assert any(json.loads(row["masks"]) for row in answers.rows("SELECT masks FROM images"))


def test_more_cases_than_there_are_is_refused(tmp_path):
    with (
        pytest.raises(UsvitError, match="The source has 6 cases, and the study needs 9"),
        opened(write_study(tmp_path, source={"cases": 8}, training=1)),
    ):
        pass


WRONG = [
    ({"labels": "missing.csv"}, "missing.csv"),
    ({"positive": "cancer"}, "No case has the reference class 'cancer'"),
    ({"unit": "patient"}, "does not say to which patient it belongs"),
    ({"images": ["nowhere"]}, "nowhere does not exist"),
]


@pytest.mark.parametrize(("source", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_source_that_cannot_be_used_is_named(tmp_path, source, said):
    study = write_study(tmp_path, source=source)
    with pytest.raises(UsvitError, match=said), opened(study):
        pass


def test_a_label_of_no_image_and_two_labels_of_one_are_refused(tmp_path):
    study = write_study(tmp_path)
    labels = tmp_path / "labels.csv"
    text = labels.read_text()
    for more, said in (
        ("other.png,benign\n", "1 label of images .* such as 'other.png'"),
        ("Novakova-0.png,benign\n", "two labels"),
    ):
        labels.write_text(text + more)
        with pytest.raises(UsvitError, match=said), opened(study):
            pass


def test_training_cases_need_a_reference_class(tmp_path):
    study = write_study(tmp_path, training=2, source={"labels": None})
    with pytest.raises(UsvitError, match="2 of the 2 training cases have no reference class"), opened(study):
        pass


def test_an_image_that_changed_or_is_missing_stops_the_study_before_it_is_served(tmp_path):
    study = write_study(tmp_path)
    with opened(study):
        pass
    picture = tmp_path / "images" / "Novakova-2.png"
    content = picture.read_bytes()
    Image.new("L", (64, 48)).save(picture)
    with pytest.raises(UsvitError, match=r"Novakova-2.png has changed since the study began"), opened(study):
        pass
    picture.unlink()
    with pytest.raises(UsvitError, match=r"Novakova-2.png is missing or cannot be read"), opened(study):
        pass
    picture.write_bytes(content)  # the same bytes, at another time
    with opened(study):
        pass


def test_an_image_that_changes_while_it_is_served_is_not_shown(tmp_path):
    with served(write_study(tmp_path)) as server:
        reader = Reader(server, "A")
        (image,) = reader.state["task"]["images"]
        for picture in (tmp_path / "images").iterdir():
            Image.new("L", (64, 48)).save(picture)
        answer = reader.client.get(f"/image/{image['id']}/0.png")
        assert answer.status_code == 410 and "not the file with which the study began" in answer.json()["error"]
        assert "Novakova" not in answer.text


def test_another_study_in_the_folder_is_refused_and_kept(tmp_path):
    study = write_study(tmp_path)
    with served(study) as server:
        Reader(server, "A").read()
    write_study(tmp_path, seed=5, title="Another title")
    with pytest.raises(UsvitError, match=r"began with other settings \(seed\)"), opened(study):
        pass
    write_study(tmp_path, title="Another title")
    with opened(study) as answers:
        assert answers.rows("SELECT COUNT(*) AS n FROM readings WHERE answered_at IS NOT NULL")[0]["n"] == 1


@pytest.mark.parametrize("masks", ["never", "feedback", "aided"])
def test_masks_are_shown_as_the_study_says(tmp_path, small_phantom, monkeypatch, masks):
    monkeypatch.setattr("usvit.reviewing.settings.SourceSettings.has_model", True)
    (tmp_path / "study.yaml").write_text(
        f"source: {{dataset: phantom, data_root: {small_phantom}, cases: 2}}\n"
        f"design: sequential\ntraining: 1\nmasks: {masks}\nseed: 1\n"
    )
    with opened(tmp_path / "study.yaml") as answers, answers.database.transaction() as connection:
        connection.execute("UPDATE cases SET score = 0.5")
        lesion = answers.rows("SELECT masks FROM images WHERE masks != '[]'")[0]["masks"]
        connection.execute("UPDATE images SET masks = ?", (lesion,))
    shown = []
    with served(tmp_path / "study.yaml") as server:
        reader = Reader(server, "reader")
        while (task := reader.state["task"]) is not None:
            answers_ = [reader.client.get(f"/mask/{one['id']}") for one in task["images"]]
            assert all(one.status_code == (200 if task["masks"] else 403) for one in answers_)
            if task["masks"]:
                size = Image.open(io.BytesIO(answers_[0].content)).size
                assert size == (task["images"][0]["width"], task["images"][0]["height"])
                shown.append((task["training"], task["stage"], task["phase"]))
            if task["phase"] == "feedback":
                reader.post("next", task=task["id"])
            else:
                reader.read()
    practice, feedback, aided = (True, "aided", "answer"), (True, "aided", "feedback"), (False, "aided", "answer")
    assert shown == {"never": [], "feedback": [feedback], "aided": [practice, feedback, aided, aided]}[masks]
