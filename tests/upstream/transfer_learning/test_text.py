"""``usvit transfer --how text`` on pictures with a table of texts, on phantoms and on shards, and what it refuses."""

import numpy as np
import pandas as pd
import pytest
import webdataset
from sklearn.metrics import roc_auc_score

from tests.messages import record_messages
from tests.upstream.transfer_learning.conftest import CLASSES, N, picture
from tests.upstream.transfer_learning.test_experiment import run
from usvit.config import build
from usvit.data.phantom import WORDING, PhantomSpec, write_phantom
from usvit.errors import UsvitError
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.text_tuning.tower import load_text_tower
from usvit.upstream.transfer_learning.experiment import Transfer

SMALL = {"width": 16, "heads": 2, "depth": 1, "steps": 60, "batch_size": 30, "lr": 0.01, "vocabulary": 300}


@pytest.fixture
def pairs(pictures):
    """A table with a text and a concept of every picture."""
    files = sorted(file.relative_to(pictures) for file in pictures.rglob("*.png"))
    rows = [
        {"image_id": str(file), "text": f"a picture {index % 7} of {file.parts[1]}", "kind": file.parts[1][:1]}
        for index, file in enumerate(files)
    ]
    return pd.DataFrame(rows)


def text(pairs, tmp_path, **more):
    pairs.to_csv(tmp_path / "pairs.csv", index=False)
    return {"how": "text", "text": SMALL | {"pairs": str(tmp_path / "pairs.csv")} | more}


@pytest.mark.slow
def test_pictures_are_classified_by_the_names_of_their_classes(settings, pairs, tmp_path):
    outcome = run(settings, tmp_path / "run", text(pairs, tmp_path))
    record = outcome.result
    assert record.summary[0].accuracy.value > 0.6  # three classes; chance is 0.33
    found = pd.read_csv(outcome.path / "predictions.csv")
    for name in CLASSES:
        line = next(one for one in record.text.zero_shot if (one.of, one.value) == ("class", name))
        assert line.n_positive == N["test"]
        assert line.auc.value == pytest.approx(roc_auc_score(found.label == name, found[f"prob_{name}"]))
    scores = pd.read_csv(outcome.path / "concepts.csv")
    columns = [f"kind: {name[0]}" for name in CLASSES]
    assert scores.columns.tolist() == ["image_id", *columns]
    assert scores[columns].sum(axis=1).to_numpy() == pytest.approx(1, abs=1e-5)
    assert [(one.query, one.k) for one in record.text.recall] == [(q, k) for q in ("image", "text") for k in (1, 5, 10)]
    page = (outcome.path / "report.html").read_text()
    assert "Zero-shot AUC" in page and "kind: b" in page and "Retrieval" in page
    assert len(load_text_tower(outcome.path / "fold-0").words) == record.text.n_words


@pytest.mark.slow
def test_pairs_in_shards_need_no_class_and_the_test_no_text(settings, tmp_path):
    for part, count in (("train", 10), ("test", 6)):
        with webdataset.TarWriter(str(tmp_path / f"{part}.tar")) as tar:
            for label, name in enumerate(CLASSES):
                for index in range(count):
                    more = {"txt": f"some {name}"} if part == "train" else {"json": {"label": name}}
                    pixels = picture(label, index + 1000 * (part == "test"))
                    tar.write({"__key__": f"{name}{index}", "png": pixels / 255, **more})
    source = {"name": "shards", "path": str(tmp_path / "train.tar"), "val": None, "val_share": 0.0}
    changes = {"how": "text", "text": SMALL, "source": source, "test": str(tmp_path / "test.tar")}
    record = run(settings, tmp_path / "run", changes).result
    assert (record.images.classes, record.images.n_train, record.text.recall) == (list(CLASSES), 30, [])
    assert record.summary[0].accuracy.value > 0.6


@pytest.mark.slow
def test_texts_of_a_phantom_that_usvit_writes_are_pairs_of_its_data_card(settings, tmp_path):
    folder = write_phantom(PhantomSpec(n=60, size=64), tmp_path / "phantom")
    changes = {
        "how": "text",
        "source": {"name": "data", "path": None, "val": None, "val_share": 0.1},
        "data": {"dataset": "phantom"},
        "text": SMALL | {"steps": 2, "pairs": str(folder / "texts.csv")},
    }
    config = build(TransferConfig, settings, changes)
    found = Transfer(config, out=tmp_path / "run", command="usvit transfer", roots={"phantom": folder}).run().result
    patients = {one.auc.n_groups for one in found.text.zero_shot if one.of == "class"}
    assert len(patients) == 1 and patients.pop() < found.images.n_test  # views of a patient count together
    assert {one.of for one in found.text.zero_shot} == {"class", *WORDING}


@pytest.mark.slow
def test_long_texts_are_cut_with_a_count(settings, pairs, tmp_path):
    pairs.loc[pairs.image_id.str.startswith("train/bars/0"), "text"] = "long " * 500
    said = record_messages()
    record = run(settings, tmp_path / "run", text(pairs, tmp_path, context=32, steps=2)).result
    assert record.text.n_cut == 1
    assert any("1 texts are longer than text.context=32" in line for line in said)


def refused(settings, changes, tmp_path, match):
    with pytest.raises(UsvitError, match=match):
        run(settings, tmp_path / "run", changes)
    assert not (tmp_path / "run").exists()


def test_pairs_that_cannot_be_used_are_refused_before_anything_is_written(settings, pairs, tmp_path):
    lost = pairs.assign(text=np.where(pairs.image_id == "train/bars/3.png", " ", pairs.text))
    refused(settings, text(lost, tmp_path), tmp_path, r"1 of 30 training images have no text.*\(bars/3.png\)")
    same = pairs.assign(image_id=pairs.image_id.str.partition("/")[2]).drop_duplicates("image_id")
    refused(settings, text(same, tmp_path), tmp_path, "bars/0.png, which is an image of the training and another one")
    fewer = pairs[~pairs.image_id.str.startswith("train/dots")]
    refused(settings, text(fewer, tmp_path), tmp_path, "10 of 30 training images have no text")
    refused(settings, text(pairs.rename(columns={"text": "caption"}), tmp_path), tmp_path, "pairs.csv.*text")
    twice = pd.concat([pairs, pairs.head(1)])
    refused(settings, text(twice, tmp_path), tmp_path, "two rows for the image")
    others = pairs.assign(image_id=pairs.image_id + "x")
    refused(settings, text(others, tmp_path), tmp_path, "No training image has a text")
    refused(settings, {"how": "text"}, tmp_path, "No training image has a text in the source folder")
    wrong = text(pairs, tmp_path, prompts={"stripes": ["striped"]})
    refused(settings, wrong, tmp_path, "text.prompts names the class stripes")


def test_rows_of_images_that_are_not_there_are_named(settings, pairs, tmp_path):
    more = pd.concat([pairs, pd.DataFrame({"image_id": ["train/gone.png"], "text": ["gone"], "kind": ["b"]})])
    said = record_messages()
    with pytest.raises(UsvitError, match="stripes"):
        run(settings, tmp_path / "a", text(more, tmp_path, prompts={"stripes": ["striped"]}))
    run(settings, tmp_path / "run", text(more, tmp_path, steps=2))
    assert any("train/gone.png" in line for line in said)
