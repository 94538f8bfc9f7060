"""Choices on the images of another data set (Steiner et al. 2022, section 4.5), and the levels of a taxonomy."""

import pandas as pd
import pytest
from PIL import Image

from tests.upstream.sources import layouts
from tests.upstream.transfer_learning.conftest import N, picture
from usvit.config import build
from usvit.data.splits import load_metadata
from usvit.errors import LeakageError, UsvitError
from usvit.progress import NO_PROGRESS
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.sources import imagenet
from usvit.upstream.transfer_learning.experiment import Transfer, UpstreamSelection
from usvit.upstream.transfer_learning.splits import open_splits

WNIDS = ("n00000010", "n00000020", "n00000030")
V2 = {"val_source": "imagenet_v2", "val": "matched-frequency"}


@pytest.fixture
def photographs(tmp_path, monkeypatch):
    """Three classes of ImageNet, and ImageNet-V2 with labels that ``permuted`` exchanges."""
    monkeypatch.setattr(imagenet, "wnids", lambda: WNIDS)

    def write(permuted=(0, 1, 2)):
        for label, wnid in enumerate(WNIDS):
            folders = {
                "train": tmp_path / "imagenet" / "train" / wnid,
                "test": tmp_path / "imagenet" / "val" / wnid,
                "val": tmp_path / "v2" / "imagenetv2-matched-frequency-format-val" / str(permuted[label]),
            }
            for number, (part, folder) in enumerate(folders.items()):
                folder.mkdir(parents=True)
                for index in range(N[part]):
                    Image.fromarray(picture(label, 100 * number + index)).save(folder / f"{index}.png")
        return {"imagenet": tmp_path / "imagenet", "imagenet_v2": tmp_path / "v2"}

    return write


def transfer(settings, roots, out, **more):
    source = {"name": "imagenet", "split": "train", **V2}
    config = build(TransferConfig, {**settings, "source": source, "test": "val"}, more)
    experiment = UpstreamSelection if config.upstream else Transfer
    return experiment(config, roots=roots, out=out, command="usvit transfer").run()


@pytest.mark.slow
@pytest.mark.parametrize(("permuted", "best"), [((0, 1, 2), "moving"), ((1, 2, 0), "still")])
def test_a_cell_is_chosen_on_imagenet_v2(settings, photographs, tmp_path, permuted, best):
    """With V2's labels exchanged, the cell that learns has the lower accuracy there, whatever the test says."""
    training = {
        "optim": {"name": "adamw", "lr": 1e-2},
        "train": {"steps": 15, "batch_size": 15},
        "views": {"test_crop": 1.0, "crop": "resize"},
        "cells": {"still": {"optim": {"lr": 1e-300, "name": "sgd"}}, "moving": {}},
    }
    roots = photographs(permuted)
    outcome = transfer(settings, roots, tmp_path / "run", how="finetune", **training)
    assert outcome.result.chosen.cell == best
    assert outcome.result.images.chosen_on == "part matched-frequency of imagenet_v2"
    results = pd.read_csv(outcome.path / "results.csv").set_index("part")
    assert results.loc["val"].n_images.tolist() == [12, 12] and results.loc["test"].n_images == 18
    seen = load_metadata(outcome.path / "fold-0" / "model.safetensors").seen_sha256
    assert (len(seen.train), len(seen.val)) == (30, 12)  # V2 can no longer be a test of this network


@pytest.mark.slow
def test_upstream_networks_are_chosen_on_imagenet_v2(settings, photographs, tmp_path):
    roots = photographs()
    one = transfer(settings, roots, tmp_path / "one", how="linear", seed=1)
    weights = ["scratch", str(tmp_path / "copy.safetensors")]
    (one.path / "fold-0" / "model.safetensors").rename(weights[1])
    outcome = transfer(settings, roots, tmp_path / "both", how="linear", upstream=weights)
    found = outcome.result.recommended
    of_v2 = {row.name: row.downstream_val_accuracy for row in found.candidates}
    assert found.by_adapting_all.name == max(of_v2, key=of_v2.get)
    for name, accuracy in of_v2.items():
        results = pd.read_csv(outcome.path / "upstream" / name / "results.csv")
        chosen = results[(results.part == "val") & results.chosen]
        assert chosen.n_images.tolist() == [12] and chosen.accuracy.tolist() == [pytest.approx(accuracy)]


def test_a_test_image_among_the_validation_images_of_another_data_set_is_refused(settings, photographs, tmp_path):
    roots = photographs()
    copied = roots["imagenet"] / "val" / WNIDS[0] / "0.png"
    v2 = roots["imagenet_v2"] / "imagenetv2-matched-frequency-format-val" / "0" / "new.png"
    v2.write_bytes(copied.read_bytes())
    with pytest.raises(LeakageError, match="1 test images of imagenet are also among the training or validation"):
        transfer(settings, roots, tmp_path / "run", how="linear")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"val_source": "imagenet_real", "val": "val"}, "test=val and source.val=val share the part val"),
        ({"val": "train"}, "Unknown split of imagenet_v2 'train'.*matched-frequency"),
        ({"val": "val", "val_source": "imagenet"}, "share the part val"),
    ],
)
def test_what_cannot_be_chosen_on_is_refused(settings, photographs, tmp_path, source, said):
    with pytest.raises(UsvitError, match=said):
        transfer(settings, photographs(), tmp_path / "run", how="linear", source=source)


def opened(root, year, fine=None, **source):
    settings = {"how": "retrieval", "test": "val", "fine": fine, "source": {"name": f"inat{year}", **source}}
    return open_splits(build(TransferConfig, settings), {f"inat{year}": root}, NO_PROGRESS)


@pytest.mark.parametrize("year", [18, 19])
@pytest.mark.parametrize("trained", [None, "all", "kingdom", "order", "genus"])
@pytest.mark.parametrize("tested", [None, "kingdom", "order", "genus"])
def test_every_level_of_inaturalist_is_tested_whatever_was_trained(tmp_path, year, trained, tested):
    """Tables 2.5, 2.6 and 2.14: training levels by test levels, of both years."""
    layouts.write_inat(tmp_path, 2000 + year)
    species = opened(tmp_path, year)
    splits = opened(tmp_path, year, coarse=trained, fine=tested)
    levels = species.train.source.levels
    for split, own in ((splits.train, species.train), (splits.test, species.test)):
        label = [own.source.classes[target] for target in own.targets]
        if tested is not None:
            label = [levels[tested][target] for target in own.targets]
        assert [split.source.classes[target] for target in split.targets] == label
        coarse = {None: None, "all": [0] * len(own)}.get(trained, "named")
        if coarse == "named":
            names = sorted(set(levels[trained]))
            coarse = [names.index(levels[trained][target]) for target in own.targets]
        assert (None if split.coarse_targets is None else split.coarse_targets.tolist()) == coarse


def test_a_share_of_the_training_images_can_be_tested_at_a_level_too(tmp_path):
    layouts.write_inat(tmp_path, 2018)
    source = {"name": "inat18", "coarse": "order", "val_share": 0.25}
    config = build(TransferConfig, {"how": "retrieval", "test": None, "fine": "kingdom", "source": source})
    splits = open_splits(config, {"inat18": tmp_path}, NO_PROGRESS)
    assert (len(splits.train), len(splits.test)) == (3, 1)
    assert splits.classes == ("Animalia", "Plantae")
