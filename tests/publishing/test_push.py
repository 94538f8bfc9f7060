"""Models go to a place and come back as they were; what differs there is refused."""

import json
import uuid

import fsspec
import pytest
import yaml
from fsspec.implementations.memory import MemoryFileSystem
from huggingface_hub import HfFileSystem, ModelCard, constants

from tests.publishing.hub import running_hub
from usvit.errors import UsvitError
from usvit.publishing import FILE, pull_model, push_model, sign_model

KNOWN = ["metrics.json", "model.json", "model.safetensors"]


@pytest.fixture(params=["path", "file", "memory"])
def address(request, tmp_path):
    places = {"path": tmp_path / "shared" / "m", "file": f"file://{tmp_path}/shared/m", "memory": "memory://"}
    return str(places[request.param]) + ("" if request.param != "memory" else uuid.uuid4().hex)


def test_the_files_come_back_and_only_those_of_a_model(model, address, tmp_path):
    pushed = push_model(model, address)
    assert list(pushed.files) == [*KNOWN, "README.md", FILE]
    pulled = pull_model(address, tmp_path / "pulled")
    assert sorted(path.name for path in pulled.iterdir()) == sorted(pushed.files)
    for name in KNOWN:
        assert (pulled / name).read_bytes() == (model / name).read_bytes()
    with pytest.raises(UsvitError, match="holds files already"):
        push_model(model, address)
    with pytest.raises(UsvitError, match="not empty"):
        pull_model(address, tmp_path / "pulled")


def test_the_card_states_what_the_records_state(model, tmp_path):
    metrics = json.loads((model / "metrics.json").read_text())
    push_model(model, str(tmp_path / "shared"))
    text = (tmp_path / "shared" / "README.md").read_text()
    card = yaml.safe_load(text.split("---\n")[1])
    assert card["library_name"] == "usvit" and card["datasets"] == ["phantom"] and card["license"] == "other"
    assert card["license_name"] == "training images of phantom: Apache-2.0"
    assert "not a medical device" in card["intended_use"]
    results = {one["name"]: one for one in card["model-index"][0]["results"][0]["metrics"]}
    auc = metrics["headline"]["auc"]
    stated = results[f"AUC, {metrics['positive_class']} vs rest"]
    assert stated["value"] == auc["value"] and stated["args"]["ci95"] == auc["ci95"]
    read = ModelCard(text).data  # the hub's own reader of cards
    assert {one.metric_type for one in read.eval_results} >= {"roc_auc", "accuracy", "recall", "brier_score"}
    low, high = auc["ci95"]
    assert f"{auc['value']:.3f} ({low:.3f} to {high:.3f})" in text and "usvit phantom" in text


def test_predictions_go_along_only_when_asked(model, keys, tmp_path):
    assert "predictions.csv" in push_model(model, str(tmp_path / "a"), predictions=True).files
    sign_model(model, keys[0])
    with pytest.raises(UsvitError, match="--predictions"):
        push_model(model, str(tmp_path / "b"))
    assert not (tmp_path / "b").exists()
    assert push_model(model, str(tmp_path / "b"), predictions=True).signed
    pull_model(str(tmp_path / "b"), tmp_path / "c", require_signature=keys[1])


def edited(change):
    def edit(place):
        record = json.loads((place / FILE).read_text())
        change(record["files"])
        (place / FILE).write_text(json.dumps(record))

    return edit


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda place: (place / "model.safetensors").write_bytes(b"x"), "is not the file whose SHA-256"),
        (lambda place: (place / FILE).unlink(), "There is no model"),
        (lambda place: (place / FILE).write_text("{"), FILE),
        (edited(lambda files: files.update({"../evil.json": "0" * 64})), "no file of a model"),
        (edited(lambda files: files.update({"model.pkl": "0" * 64})), "no file of a model"),
        (edited(lambda files: files.update({"fold-0/model.json": "0" * 64})), "There is no model"),
        (edited(lambda files: files.pop("model.safetensors")), "neither run.json nor model.safetensors"),
    ],
)
def test_what_was_changed_there_is_refused_and_nothing_stays(model, tmp_path, damage, message):
    push_model(model, str(tmp_path / "shared"))
    damage(tmp_path / "shared")
    with pytest.raises(UsvitError, match=message) as caught:
        pull_model(str(tmp_path / "shared"), tmp_path / "pulled")
    assert "partial" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "shared"]


def test_a_larger_file_than_such_a_file_may_be_is_refused(model, tmp_path, monkeypatch):
    push_model(model, str(tmp_path / "shared"))
    monkeypatch.setattr("usvit.publishing.pull.most_bytes", lambda name: 100)
    with pytest.raises(UsvitError, match="larger than such a file may be"):
        pull_model(str(tmp_path / "shared"), tmp_path / "pulled")
    assert not (tmp_path / "pulled").exists()


def test_a_push_that_fails_leaves_nothing(model):
    class Full(MemoryFileSystem):
        protocol, store, pseudo_dirs = "full", {}, [""]

        def _open(self, path, mode="rb", **options):
            if mode == "wb" and path.endswith("model.safetensors"):
                raise OSError("no room")
            return super()._open(path, mode, **options)

    fsspec.register_implementation("full", Full, clobber=True)
    with pytest.raises(UsvitError, match="cannot be written: no room"):
        push_model(model, "full://m")
    assert not Full.store


@pytest.mark.parametrize("address", ["http://x.invalid/m", "zip://m::s3://x", "hf://only-a-name", "nodriver://x/y"])
def test_addresses_that_are_none_are_refused(model, address):
    with pytest.raises(UsvitError) as caught:
        push_model(model, address)
    assert len(str(caught.value).splitlines()) == 1


def test_a_folder_that_is_no_model_is_refused_by_the_command(usvit, tmp_path):
    answer = usvit("models", "push", tmp_path, tmp_path / "there")
    assert answer.code == 2 and "not a run of usvit" in answer.err and not (tmp_path / "there").exists()


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A stand-in of the hub, which this process takes for the hub; LFS instead of Xet, whose servers have none."""
    with running_hub() as hub:
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, hub.endpoint)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", "hf_none")
        HfFileSystem.clear_instance_cache()
        yield hub
    HfFileSystem.clear_instance_cache()


def test_the_hubs_own_client_pushes_one_commit_to_a_private_repository_and_pulls_it(hub, model, keys, tmp_path):
    (model / "predictions.csv").unlink()
    sign_model(model, keys[0])
    assert push_model(model, "hf://me/model").signed
    assert hub.commits == [sorted([*KNOWN, "README.md", FILE])] and hub.private == {"me/model": True}
    assert "model-index" in hub.cards[0] and hub.stored, "the card is checked by the hub, the weights are in LFS"
    with pytest.raises(UsvitError, match="holds files already"):
        push_model(model, "hf://me/model")
    assert len(hub.commits) == 1
    pulled = pull_model("hf://me/model", tmp_path / "pulled", require_signature=keys[1])
    for name in (*KNOWN, FILE):
        assert (pulled / name).read_bytes() == (model / name).read_bytes()
    hub.repositories["me/model"]["model.safetensors"] = b"x"
    with pytest.raises(UsvitError, match="SHA-256"):
        pull_model("hf://me/model", tmp_path / "again")
    with pytest.raises(UsvitError, match="There is no model of usvit at hf://me/none"):
        pull_model("hf://me/none", tmp_path / "again")
    assert not (tmp_path / "again").exists()
