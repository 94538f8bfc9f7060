"""Concepts of new images: in Python, and as columns of ``usvit score``."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from safetensors.torch import load_file, save_file

import usvit
from tests.messages import record_messages
from tests.publishing.conftest import keys  # noqa: F401  (a fixture)
from usvit.data.io import decode, pixel_sha256
from usvit.data.phantom import WORDING
from usvit.errors import UsvitError
from usvit.files import read_csv
from usvit.publishing import sign_model
from usvit.upstream.text_tuning.concept_scorer import load_concepts

pytestmark = pytest.mark.slow


@pytest.fixture
def tested(trained, phantoms):
    """The table that the run wrote for its test images, by their files."""
    table = read_csv(trained / "concepts.csv", text=("image_id",)).set_index("image_id")
    files = {file.stem: file for file in phantoms.rglob("*.png")}
    return table.rename(index=lambda name: files[name.rpartition("/")[2].removesuffix(".png")])


def test_images_have_the_scores_that_the_run_wrote_for_its_test(trained, tested):
    scorer = usvit.load_concepts(trained, device="cpu")
    assert {name.partition(": ")[0] for name in scorer.concepts} == {*WORDING}
    found = scorer.predict([str(file) for file in tested.index])
    assert found.columns.tolist() == tested.columns.tolist() == list(scorer.concepts)
    np.testing.assert_allclose(found.to_numpy(), tested.to_numpy(), atol=1e-5)
    assert found.to_numpy().std(axis=0).min() > 1e-4  # images differ
    for kind in WORDING:
        own = [name for name in scorer.concepts if name.startswith(f"{kind}: ")]
        assert found[own].sum(axis=1).to_numpy() == pytest.approx(1)
    assert load_concepts(trained / "fold-0", device="cpu").sha256 == scorer.sha256
    assert scorer.predict([]).shape == (0, len(scorer.concepts))


def test_usvit_score_writes_a_column_of_each_value(usvit, trained, tested, tiny_run, tmp_path):
    (tmp_path / "in").mkdir()
    for file in tested.index:
        shutil.copy(file, tmp_path / "in")
    answer = scored(usvit, tiny_run, tmp_path, "--concepts-from", trained)
    assert answer.code == 0, answer.err
    scores = read_csv(tmp_path / "scores" / "scores.csv", text=("path",)).set_index("path")
    expected = tested.rename(index=lambda file: file.name).add_prefix("concept_")
    np.testing.assert_allclose(scores.loc[expected.index, expected.columns], expected, atol=1e-5)
    of_parquet = pd.read_parquet(tmp_path / "scores" / "scores.parquet")
    assert of_parquet["concept_margin: spiculated"].between(0, 1).all()
    model = json.loads((tmp_path / "scores" / "summary.json").read_text())["model"]
    assert model["concepts"]["networks"] == 1 and "segmenter" not in model


def scored(usvit, run, tmp_path, *more):
    return usvit(
        *("score", "--model", run, "--input", tmp_path / "in", "--out", tmp_path / "scores", "--key", tmp_path / "key"),
        *("--workers", 1, "--keep-ids", "--device", "cpu", *more),
    )


def test_images_of_its_training_count_as_seen(usvit, trained, phantoms, tiny_run, tmp_path):
    seen = json.loads((trained / "fold-0" / "model.json").read_text())["seen_sha256"]
    assert seen["train"]
    (tmp_path / "in").mkdir()
    learnt = next(file for file in phantoms.rglob("*.png") if pixel_sha256(decode(file)[0]) in seen["train"])
    new = np.random.default_rng(0).integers(0, 255, (64, 64, 3)).astype(np.uint8)
    shutil.copy(learnt, tmp_path / "in" / "learnt.png")
    Image.fromarray(new).save(tmp_path / "in" / "new.png")
    answer = scored(usvit, tiny_run, tmp_path, "--concepts-from", trained)
    assert answer.code == 0, answer.err
    rows = read_csv(tmp_path / "scores" / "scores.csv", text=("path",)).set_index("path")
    assert rows.seen.to_dict() == {"learnt.png": True, "new.png": False}
    said = record_messages()
    load_concepts(trained, device="cpu").predict([str(learnt), new])
    assert any("1 of 2 images were used to train the text tower" in line for line in said)


def test_an_unsigned_text_tower_is_refused_where_signatures_are_required(usvit, trained, tiny_run, keys, tmp_path):  # noqa: F811
    private, public = keys
    (tmp_path / "in").mkdir()
    Image.fromarray(np.full((64, 64), 9, np.uint8)).save(tmp_path / "in" / "a.png")
    for run, name in ((tiny_run, "model"), (trained, "tower")):
        shutil.copytree(run, tmp_path / name)
    sign_model(tmp_path / "model", private)
    more = ("--concepts-from", tmp_path / "tower", "--require-signature", public)
    answer = scored(usvit, tmp_path / "model", tmp_path, *more)
    assert answer.code == 2 and "tower is not signed" in answer.err
    sign_model(tmp_path / "tower", private)
    assert scored(usvit, tmp_path / "model", tmp_path, *more).code == 0
    file = tmp_path / "tower" / "fold-0" / "text.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert "text.safetensors is not the file" in scored(usvit, tmp_path / "model", tmp_path, *more).err


def test_runs_without_concepts_to_score_are_refused(usvit, trained, tiny_run, tmp_path):
    (tmp_path / "in").mkdir()
    answer = scored(usvit, tiny_run, tmp_path, "--concepts-from", tiny_run)
    assert answer.code == 2 and "is a run of usvit cv, but no training of a text tower" in " ".join(answer.err.split())
    assert not (tmp_path / "scores").exists()
    copy = shutil.copytree(trained, tmp_path / "copy")
    file = copy / "fold-0" / "text.safetensors"
    tensors = load_file(file)
    header = {"merges": "[]", "text": json.dumps({"width": 16, "heads": 2, "depth": 1})}
    save_file(tensors, file, header)
    with pytest.raises(UsvitError, match=r"text.safetensors is damaged"):
        load_concepts(copy)
    (copy / "fold-0" / "text.safetensors").unlink()
    with pytest.raises(UsvitError, match=r"has no text.safetensors"):
        load_concepts(copy)
