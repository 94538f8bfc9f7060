"""A foundation model that was pre-trained on the test data: refused by every command, or named on its pages."""

import json
import shutil

import pandas as pd
import pytest

from tests.conftest import TINY
from tests.scoring.conftest import edit_metadata
from tests.scoring.make_scores import make_scores
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.records import ListedSet, SeenCollectionRecord

LISTED = SeenCollectionRecord(
    network="Net-X",
    known="listed",
    collection="Open-3",
    source="owner/x@1, README.md",
    note="a note",
    sets=[ListedSet(name="PHANTOM-1", cards=["phantom"])],
)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def phantoms(tmp_path_factory):
    """Three phantoms with different images."""
    root = tmp_path_factory.mktemp("data")
    return [write_phantom(PhantomSpec(n=36, seed=seed, size=64), root / f"p{seed}", workers=1) for seed in (1, 2, 3)]


def said(answer):
    return " ".join((answer.err + answer.out).split())


def test_contamination_is_refused_everywhere_and_allowed_contamination_is_on_every_page(usvit, phantoms, tmp_path):
    train = ("train", "--dataset", "phantom", *TINY, "--data-root")
    first, out = tmp_path / "first", tmp_path / "second"
    assert usvit(*train, phantoms[0], "--out", first).code == 0
    edit_metadata(first / "fold-0", seen_collections=[LISTED.content()])

    command = (*train, phantoms[1], "--weights", first / "fold-0", "--out", out)
    answer = usvit(*command)
    assert answer.code == 2 and not (out / "run.json").exists()
    assert "'PHANTOM-1' in Open-3, which Net-X was pre-trained on" in said(answer)
    assert "--allow-contaminated" in said(answer)

    answer = usvit(*command, "--allow-contaminated")
    assert answer.code == 0, answer.err
    assert "CONTAMINATED" in said(answer)
    page = (out / "report.html").read_text()
    assert "CONTAMINATED. The network was pre-trained" in page and "PROBLEM" in page
    record, metrics = (json.loads((out / name).read_text()) for name in ("run.json", "metrics.json"))
    metadata = json.loads((out / "fold-0" / "model.json").read_text())
    (entry,) = record["data"]["contamination"]
    assert entry == metrics["contamination"][0] == {
        "dataset": "phantom", "listed_as": "PHANTOM-1", "network": "Net-X", "collection": "Open-3",
        "source": "owner/x@1, README.md",
    }  # fmt: skip
    assert metrics["warnings"][0].startswith("CONTAMINATED")
    assert metadata["seen_collections"] == [LISTED.content()]
    answer = usvit("evaluate", out)
    assert answer.code == 0 and "CONTAMINATED" in said(answer)

    knn = ("transfer", "--how", "knn", "--dataset", "phantom", "--data-root", phantoms[2], "--weights", out / "fold-0")
    test = ("test", out / "fold-0", "--dataset", "phantom", "--data-root", phantoms[2])
    for name, again in (("knn", knn), ("test", test)):
        answer = usvit(*again, "--out", tmp_path / name)
        assert answer.code == 2 and "Contamination: The " in said(answer), said(answer)
        answer = usvit(*again, "--out", tmp_path / name, "--allow-contaminated")
        assert answer.code == 0, answer.err
        assert "CONTAMINATED" in said(answer)
        assert "CONTAMINATED" in (tmp_path / name / "report.html").read_text()
        assert json.loads((tmp_path / name / "run.json").read_text())["data"]["contamination"] == [entry]

    other = shutil.copytree(out, tmp_path / "other")
    answer = usvit("compare", out, other, "--out", tmp_path / "compare")
    assert answer.code == 0, answer.err
    assert "second: CONTAMINATED" in (tmp_path / "compare" / "compare.html").read_text()
    (other / "fold-0" / "model.json").unlink()
    record["files"] = {key: value for key, value in record["files"].items() if not key.startswith("fold-0/model")}
    (other / "run.json").write_text(json.dumps(record))
    assert "CONTAMINATED" in said(usvit("evaluate", other))  # also by the record alone


def test_scores_of_a_listed_data_set_are_not_evaluated(usvit, tmp_path):
    truth = make_scores(tmp_path / "scores", key=tmp_path / "key", n_patients=20)
    truth.to_csv(tmp_path / "labels.csv", index=False)
    truth.assign(dataset="phantom").to_csv(tmp_path / "named.csv", index=False)
    path = tmp_path / "scores" / "summary.json"
    summary = json.loads(path.read_text())
    seen = {"known": "nothing", "n_hashes": 0, "n_descriptions": 0, "gaps": [], "collections": [LISTED.content()]}
    summary["model"]["seen"] = (summary["model"].get("seen") or {}) | seen
    path.write_text(json.dumps(summary))
    evaluate = ("evaluate", tmp_path / "scores", "--join", "item_id", "--key", tmp_path / "key", "--labels")
    answer = usvit(*evaluate, tmp_path / "labels.csv")
    assert answer.code == 0 and "name it with --dataset" in said(answer)
    for more in ((tmp_path / "named.csv",), (tmp_path / "labels.csv", "--dataset", "phantom")):
        answer = usvit(*evaluate, *more)
        assert answer.code == 2 and "Contamination: The model was pre-trained" in said(answer)
    answer = usvit(*evaluate, *more, "--allow-contaminated", "--out", tmp_path / "external")
    assert answer.code == 0 and "CONTAMINATED" in said(answer)
    assert json.loads((tmp_path / "external" / "metrics.json").read_text())["contamination"]
    assert pd.read_csv(tmp_path / "external" / "predictions.csv").shape[0] > 0
    answer = usvit(*evaluate, tmp_path / "labels.csv", "--dataset", "busi")
    assert answer.code == 0 and "CONTAMINATED" not in said(answer)


def test_the_list_of_foundation_models_shows_licences_and_data_sets(usvit):
    answer = usvit("models", "hub")
    assert answer.code == 0
    (line,) = [line for line in answer.out.splitlines() if line.startswith("usf_mae ")]
    assert "MIT" in line and "OpenUS-46" in line and "bus_bra" in line
    answer = usvit("models", "hub", "usf_mae")
    assert "BUS-BRA (bus_bra)" in said(answer) and "Yusufii9/USF-MAE@e58c291" in said(answer)
    assert json.loads(usvit("models", "hub", "--json").out)[0]["name"] == "usfm"
    answer = usvit("models", "hub", "usf-mae")
    assert answer.code == 2 and "usf_mae" in said(answer)
