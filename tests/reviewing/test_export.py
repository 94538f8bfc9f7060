"""The tables of a study: what the readers answered, in the form that usvit mrmc and usvit evaluate read."""

import json

import numpy as np
import pandas as pd
import pytest

import usvit
from tests.reviewing.studies import Reader, give_scores, opened, served, write_study
from usvit.errors import UsvitError
from usvit.reviewing.answers import study_folder

POINT = {"image": 0, "frame": 0, "x": 1.5, "y": 2}


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """A sequential study of 20 cases that three readers have read, with repeats, and what they answered."""
    folder = tmp_path_factory.mktemp("read")
    questions = [
        {"name": "malignancy", "kind": "scale"},
        {"name": "signs", "choices": ["a", "b"], "multiple": True},
        {"name": "where", "kind": "point"},
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("usvit.reviewing.settings.SourceSettings.has_model", True)
        study = write_study(
            folder, n=22, design="sequential", readers=["A", "B", "C"], training=2, repeats=3, questions=questions
        )
        with opened(study) as answers:
            give_scores(answers, {f"Novakova-{k}.png": (0.2, 0.9)[k % 2] + 0.001 * k for k in range(22)})
        script, rng = {}, np.random.default_rng(1)
        with served(study) as server:
            for name in "ABC":
                reader = Reader(server, name)
                while (task := reader.state["task"]) is not None:
                    if task["phase"] == "feedback":
                        reader.post("next", task=task["id"])
                        continue
                    value = int(rng.integers(0, 101))
                    reader.read(malignancy=value, signs=["a", "b"], where=POINT)
                    script[task["id"]] = name, task["stage"], value
            yield study, script, usvit.export_review(study, out=folder / "out")


def test_the_exported_table_equals_what_was_answered(read):
    _, script, export = read
    table = pd.read_csv(export.folder / "readings.csv")
    assert len(table) == 3 * 2 * (22 + 3) and export.n_open == 0 and export.n_readings == 3 * 2 * 20
    given = [(row.reader, row.modality, row.malignancy) for row in table.itertuples()]
    assert given == [script[number] for number in sorted(script)]
    assert {*table.signs} == {"a | b"} and json.loads(table["where"][0]) == POINT


def test_all_formats_hold_the_same_and_the_dictionary_names_every_column(read):
    folder = read[2].folder
    table = pd.read_csv(folder / "readings.csv")
    assert pd.read_parquet(folder / "readings.parquet").malignancy.tolist() == table.malignancy.tolist()
    assert pd.read_excel(folder / "readings.xlsx").malignancy.tolist() == table.malignancy.tolist()
    assert pd.read_csv(folder / "dictionary.csv").column.tolist() == table.columns.tolist()


def test_mrmc_analyses_the_answers_without_further_options(read, tmp_path):
    export = read[2]
    record, folder = usvit.mrmc(export.folder / "answers.csv", out=tmp_path / "mrmc")
    page = (folder / "mrmc.html").read_text()  # its checklist has the protocol of the study
    assert "design sequential: all cases of the source" in page and "2 training cases" in page
    assert (record.readers, record.modalities, record.model) == (["A", "B", "C"], ["unaided", "aided"], "model")
    assert (record.n_cases, record.n_positive) == (20, sum(_positive(export)))
    assert record.figures[0].model == 1.0  # its scores separate the classes


def test_mrmc_reads_every_reading_too(read, tmp_path):
    folder = read[2].folder
    plain, _ = usvit.mrmc(folder / "answers.csv", out=tmp_path / "a")
    every, _ = usvit.mrmc(folder / "readings.csv", out=tmp_path / "b")
    assert every.figures[0].modalities == plain.figures[0].modalities and every.model is None
    assert (every.rows.analysed, every.rows.repeats, every.rows.training) == (120, 18, 12)
    assert [one.n_repeats for one in every.repeats] == [3, 3, 3, 9] * 2
    assert every.courses == plain.courses and every.courses.changes


def _positive(export):
    table = pd.read_csv(export.folder / "answers.csv")
    return table[table.reader == "model"].truth


def test_repeats_and_training_cases_are_in_readings_only(read):
    export = read[2]
    table = pd.read_csv(export.folder / "readings.csv")
    assert (table.training.sum(), table.repeat.sum()) == (3 * 2 * 2, 3 * 2 * 3)
    answers = pd.read_csv(export.folder / "answers.csv")
    assert len(answers) == 3 * 2 * 20 + 20


def test_labels_come_from_agreement_or_the_arbiter_and_can_be_trained_on(tmp_path):
    study = write_study(tmp_path, n=4, protocol="labelling", readers=["A", "B"], arbiter="C")
    decided = {}
    with served(study) as server:
        a, b, c = (Reader(server, name) for name in "ABC")
        while (task := a.state["task"]) is not None:
            at = _image(server, task)
            a.read(**{"class": "benign", "exclude": "yes" if at == 3 else "no"})
        while (task := b.state["task"]) is not None:
            at = _image(server, task)
            b.read(**{"class": "malignant" if at in (1, 2) else "benign", "exclude": "yes" if at == 3 else "no"})
        at = _image(server, c.state["task"])
        decided[at] = "malignant"
        c.read(**{"class": "malignant", "exclude": "no"})
    export = usvit.export_review(study)
    labels = pd.read_csv(export.folder / "labels.csv").set_index("image_id")
    assert labels.label.to_dict() == {
        "Novakova-0.png": "benign",
        f"Novakova-{at}.png": "malignant",
        "Novakova-3.png": "benign",
    }
    assert labels.decided_by.to_dict() == {
        "Novakova-0.png": "A+B",
        f"Novakova-{at}.png": "C",
        "Novakova-3.png": "A+B",
    }
    kept = pd.read_csv(export.folder / "keep_list.csv").image_id.tolist()
    assert sorted(kept) == sorted(["Novakova-0.png", f"Novakova-{at}.png"])
    images = usvit.load_dataset(
        "table", data_root=tmp_path / "images", table=str(export.folder / "labels.csv"), columns={"patient_id": "path"}
    )
    assert len(images) == 3


def _image(server, task):
    rows = server.answers.rows("SELECT name FROM images WHERE id = ?", task["images"][0]["id"])
    return int(rows[0]["name"].partition("-")[2].partition(".")[0])


def test_birads_is_rated_by_its_rank_and_0_and_6_have_no_rank(tmp_path):
    study = write_study(tmp_path, n=4, rating="birads")
    with served(study) as server:
        reader = Reader(server, "A")
        for category in ("0", "4a", "5", "6"):
            reader.read(birads=category)
    table = pd.read_csv(usvit.export_review(study).folder / "readings.csv", dtype={"birads": str})
    assert table.set_index("birads").rating.to_dict() == pytest.approx(
        {"0": np.nan, "4a": 4, "5": 7, "6": np.nan}, nan_ok=True
    )


def test_an_export_into_another_folder_is_refused(read, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsvitError, match=r"mine\.txt"):
        usvit.export_review(read[0], out=tmp_path)


def test_a_study_that_has_not_begun_is_no_study(tmp_path):
    study = write_study(tmp_path)
    for call in (usvit.export_review, usvit.review_status):
        with pytest.raises(UsvitError, match=r"There is no study in .*review-study: review.sqlite is missing"):
            call(study)


def test_status_tells_how_far_the_readers_are(tmp_path):
    study = write_study(tmp_path, readers=["A", "B"])
    with served(study) as server:
        Reader(server, "A").read()
    record = usvit.review_status(study)
    assert [(one.name, one.done, one.total, one.finished) for one in record.readers] == [
        ("A", 1, 6, False),
        ("B", 0, 6, False),
    ]


class TestMerging:
    def both(self, tmp_path, **settings):
        studies = [write_study(tmp_path / place, readers=["A", "B"], **settings) for place in ("here", "there")]
        for study, name in zip(studies, "AB", strict=True):
            with served(study) as server:
                Reader(server, name).read(malignancy=33)
        return studies

    def test_the_readings_of_another_place_are_added_once(self, tmp_path):
        here, there = self.both(tmp_path)
        folder = there.parent / "review-study"
        assert [usvit.merge_reviews(here, [folder]) for _ in range(2)] == [1, 0]
        assert [one.done for one in usvit.review_status(here).readers] == [1, 1]
        table = pd.read_csv(usvit.export_review(here).folder / "readings.csv")
        assert table[table.answered_at.notna()].malignancy.tolist() == [33, 33]

    def test_a_study_that_is_served_is_not_changed(self, tmp_path):
        here, there = self.both(tmp_path)
        with (
            study_folder(here.parent / "review-study").opened(),
            pytest.raises(UsvitError, match="Another process is serving"),
        ):
            usvit.merge_reviews(here, [there.parent / "review-study"])

    def test_answers_of_other_cases_are_refused(self, tmp_path):
        here = write_study(tmp_path / "here", n=6)
        there = write_study(tmp_path / "there", n=5)
        for study in (here, there):
            with opened(study):
                pass
        with pytest.raises(UsvitError, match="holds the answers of another study"):
            usvit.merge_reviews(here, [there.parent / "review-study"])

    def test_a_reading_that_differs_is_refused_and_nothing_is_merged(self, tmp_path):
        here, there = self.both(tmp_path)
        for study, value in ((here, 1), (there, 2)):
            with served(study) as server:
                Reader(server, "AB"[study == here]).read(malignancy=value)
        before = usvit.review_status(here)
        with pytest.raises(UsvitError, match=r"has read case .* there and here at different times"):
            usvit.merge_reviews(here, [there.parent / "review-study"])
        assert usvit.review_status(here) == before


def test_without_a_rated_case_there_is_nothing_for_mrmc(tmp_path):
    study = write_study(tmp_path, source={"labels": None})
    with served(study) as server:
        Reader(server, "A").read()
    assert "answers.csv" not in usvit.export_review(study).files
