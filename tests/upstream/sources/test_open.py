"""From ``source.*`` to images."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from tests.upstream.sources.layouts import class_tree, encoded, pixels, put
from tests.upstream.sources.test_shards import tar
from usvit.data.datasets.labelled_images import Subset, refined
from usvit.data.loading.augmented_dataset import AugmentedDataset
from usvit.data.loading.infinite_loader import InfiniteLoader
from usvit.errors import UsvitError
from usvit.seeding import derive_seed
from usvit.upstream.config.pretrain import SourceConfig
from usvit.upstream.sources.folder import open_folder
from usvit.upstream.sources.open import coarsened, labelled_by, open_source, open_training, shared_splits


@pytest.fixture
def divided(tmp_path):
    class_tree(tmp_path / "set" / "train", {"cat": 6, "dog": 6})
    class_tree(tmp_path / "set" / "val", {"dog": 3})
    return tmp_path / "set"


def config(name, **settings):
    return SourceConfig(name=name, **{key: str(value) if key == "path" else value for key, value in settings.items()})


def test_training_and_validation_of_a_folder(divided):
    training, validation = open_training(config("folder", path=divided, val="val"), {}, seed=0)
    assert (len(training), len(validation)) == (12, 3)
    assert validation.classes == ("cat", "dog") and validation.targets.tolist() == [1, 1, 1]
    assert open_training(config("folder", path=divided), {}, seed=0)[1] is None


def test_what_is_drawn_follows_the_seed(divided):
    settings = config("folder", path=divided, val_share=0.25, limit=6)
    training, validation = open_training(settings, {}, seed=0)
    assert np.bincount(training.targets).tolist() == [3, 3] or abs(np.diff(np.bincount(training.targets))[0]) <= 2
    assert len(training) == 6 and len(validation) == 3
    names = {part: [one.image_name(at) for at in range(len(one))] for part, one in (("t", training), ("v", validation))}
    assert not set(names["t"]) & set(names["v"])
    again, _ = open_training(settings, {}, seed=0)
    assert [again.image_name(at) for at in range(6)] == names["t"]
    _, whole = open_training(config("folder", path=divided, val_share=0.25), {}, seed=0)
    assert [whole.image_name(at) for at in range(3)] == names["v"]  # a limit does not change what is kept back
    others = [open_training(settings, {}, seed=seed)[0].record().content()["listing_sha256"] for seed in range(4)]
    assert len(set(others)) == 4


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"name": "imagnet"}, r"Unknown source 'imagnet'. Nearest: imagenet.*--list-sources"),
        ({"name": "phantom+phantom"}, "contains phantom twice"),
        ({"name": "folder"}, r"needs source.path: --set source.path=DIR"),
        ({"name": "shards"}, r"source.path=train-"),
        ({"name": "folder+unlabeled", "path": "x"}, "source.path can only apply to one of them"),
        ({"name": "cifar10", "path": "x"}, "source.path is set, but cifar10 does not use it"),
        ({"name": "data"}, "needs a data set: pass --dataset"),
        ({"name": "fractals", "val": "val", "val_share": 0.1}, "both set"),
        ({"name": "folder", "path": "x", "val": "train"}, "share images"),
        ({"name": "folder", "path": "a", "val": "val", "val_source": "fractals"}, "fractals cannot be validated on"),
        ({"name": "folder", "path": "a", "val": "val", "val_source": "imagnet"}, "Unknown source 'imagnet'"),
        ({"name": "folder", "path": "a", "val": "train", "val_source": "folder"}, "share images"),
        ({"name": "shards", "path": "a.tar", "val": "val"}, "Shards have no split 'val'"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, settings, said, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tar(tmp_path / "a.tar", ("0.png", encoded(0)), ("0.cls", b"1"))
    class_tree(tmp_path / "a" / "train", {"cat": 1, "dog": 1})
    with pytest.raises(UsvitError, match=said):
        open_training(SourceConfig(**settings), {}, seed=0)


def test_validation_on_another_data_set_matches_classes_by_name(tmp_path):
    """Folders sort their classes as text (0, 1, 10, 11, ...), lists of VTAB number them."""
    class_tree(tmp_path / "own" / "train", dict.fromkeys(map(str, range(16)), 1))
    put(tmp_path / "dsprites_loc" / "images" / "a.png", 3)
    (tmp_path / "dsprites_loc" / "val200.txt").write_text("images/a.png 2\nimages/a.png 10\n")
    other = {"val_source": "vtab_dsprites_loc", "val": "val200"}
    settings = config("folder", path=tmp_path / "own", **other)
    training, validation = open_training(settings, {"vtab_dsprites_loc": tmp_path}, seed=0)
    assert training.classes[2] == "10" and validation.classes == training.classes
    assert [validation.classes[target] for target in validation.targets] == ["2", "10"]
    assert (validation.name, len(training)) == ("vtab_dsprites_loc", 16)
    (tmp_path / "own" / "train" / "7").rename(tmp_path / "own" / "train" / "seven")
    with pytest.raises(UsvitError, match=r"vtab_dsprites_loc have 1 classes that the training does not have \(7\)"):
        open_training(settings, {"vtab_dsprites_loc": tmp_path}, seed=0)


def test_a_validation_source_needs_its_split():
    with pytest.raises(ValueError, match=r"val_source=imagenet_v2 needs source\.val"):
        SourceConfig(name="imagenet", val_source="imagenet_v2")


def test_splits_of_one_name_share_images_only_within_one_source():
    own = SourceConfig(name="imagenet", val="val")
    assert shared_splits(own, "val", "train+val", of_val=True) == {"val"}
    for other, expected in (("imagenet", {"val"}), ("imagenet_real", {"val"}), ("imagenet21k", set())):
        settings = SourceConfig(name="imagenet", val="val", val_source=other)
        assert shared_splits(settings, "val", "val", of_val=True) == expected
        assert shared_splits(settings, "val", "val") == {"val"}  # of the source itself


def test_shards_validate_on_other_shards(tmp_path):
    train = tar(tmp_path / "t.tar", *[(f"{at}.{kind}", data) for at in range(4) for kind, data in sample(at, at)])
    val = tar(tmp_path / "v.tar", *sample_files(0, 2))
    training, validation = open_training(config("shards", path=train, val=val), {}, seed=0)
    assert len(training.classes) == 4 and validation.classes == training.classes and validation.targets.tolist() == [2]


def sample(number, label):
    return [("png", encoded(number)), ("cls", str(label).encode())]


def sample_files(number, label):
    return [(f"{number}.{kind}", data) for kind, data in sample(number, label)]


def test_several_sources_are_one_without_labels(tmp_path):
    put(tmp_path / "photos" / "1.png", 5)
    data = open_folder(class_tree(tmp_path / "busi", {"benign": 2, "malignant": 1}))
    settings = config("phantom+unlabeled+data", path=tmp_path / "photos", size=4, image_size=32)
    union = open_source(settings, {}, split="train", seed=0, data=data)
    assert len(union) == 8 and union.classes == ()
    assert union.image(0).size == (32, 32)
    assert np.array_equal(np.asarray(union.image(4)), pixels(5))
    assert union.name == "phantom+unlabeled+data"


def test_generated_images_need_no_folder():
    training, validation = open_training(config("fractals", size=6, classes=3, image_size=32, val="val"), {}, seed=0)
    assert training.classes == validation.classes and len(training) == 6
    assert training.image(0).tobytes() != validation.image(0).tobytes()


# Examples


def corner(image, seed):
    """A view whose pixels tell the seed: the whole, moved."""
    return np.roll(np.asarray(image), seed % 12, axis=0)


@pytest.fixture
def cats(tmp_path):
    return open_folder(class_tree(tmp_path / "cats", {"a": 3, "b": 3}))


def test_a_batch_holds_the_views_that_its_seeds_make(cats):
    batch = AugmentedDataset(cats, corner).batch([(4, 7), (0, 2**62 + 3), (4, 8)])
    assert batch["images"].shape == (3, 12, 12, 3) and batch["images"].dtype.is_signed is False
    for row, (at, seed) in enumerate([(101, 7), (0, 2**62 + 3), (101, 8)]):
        assert np.array_equal(batch["images"][row].numpy(), np.roll(pixels(at), seed % 12, axis=0))
    assert batch["targets"].tolist() == [1, 0, 1]
    assert batch["seeds"].tolist() == [7, 2**62 + 3, 8] and batch["index"].tolist() == [4, 0, 4]


def test_views_that_belong_together_have_seeds_of_their_own(cats):
    batch = AugmentedDataset(cats, corner, corner, corner).batch([(1, 11), (2, 12)])
    assert batch["images"].shape == (2, 3, 12, 12, 3)
    for row, (at, seed) in enumerate([(1, 11), (2, 12)]):
        for view in range(3):
            expected = np.roll(pixels(at), derive_seed(seed, "view", view) % 12, axis=0)
            assert np.array_equal(batch["images"][row, view].numpy(), expected)


def test_local_crops_have_a_size_and_seeds_of_their_own(cats):
    def half(image, seed):
        return corner(image, seed)[::2, ::2]

    batch = AugmentedDataset(cats, corner, corner, local=[half] * 3).batch([(1, 11), (2, 12)])
    assert batch["images"].shape == (2, 2, 12, 12, 3) and batch["local"].shape == (2, 3, 6, 6, 3)
    for row, (at, seed) in enumerate([(1, 11), (2, 12)]):
        for crop in range(3):
            expected = np.roll(pixels(at), derive_seed(seed, "local", crop) % 12, axis=0)[::2, ::2]
            assert np.array_equal(batch["local"][row, crop].numpy(), expected)
    assert "local" not in AugmentedDataset(cats, corner).batch([(0, 1)])


def test_an_image_that_comes_again_in_a_batch_is_decoded_once(cats, monkeypatch):
    decoded = []
    image = type(cats).image
    monkeypatch.setattr(type(cats), "image", lambda self, at: decoded.append(at) or image(self, at))
    AugmentedDataset(cats, corner).batch([(0, 1), (1, 2), (0, 3), (1, 4), (2, 5), (0, 6)])
    assert sorted(decoded) == [0, 1, 2]


@pytest.mark.slow
def test_workers_make_the_same_batches(cats):
    def batches(workers):
        stream = InfiniteLoader(
            AugmentedDataset(Subset(cats, np.arange(5)), corner), batch_size=4, seed=1, workers=workers
        )
        return list(stream.iterate(0, 5))

    for one, two in zip(batches(0), batches(2), strict=True):
        assert one.keys() == two.keys()
        assert all(np.array_equal(one[key].numpy(), two[key].numpy()) for key in one)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_image_is_named_whole_from_any_process(tmp_path, cats, workers):
    (cats.root / "a" / "1.png").write_bytes(encoded(1)[:150])
    stream = InfiniteLoader(AugmentedDataset(cats, corner), batch_size=6, seed=1, workers=workers)
    with pytest.raises(UsvitError) as caught:
        list(stream.iterate(0, 1))
    said = str(caught.value)
    assert said.startswith(f"Cannot train on the image {cats.root / 'a' / '1.png'}: it is")
    assert said.endswith("remove the file and start a new run.") and "Traceback" not in said and "\n" not in said


@pytest.mark.parametrize("workers", [0, 1])
def test_a_shard_that_is_gone_is_named_whole_from_any_process(tmp_path, workers):
    path = tar(tmp_path / "a.tar", *sample_files(0, 0), *sample_files(1, 1))
    source = open_source(config("shards", path=path), {}, split="train", seed=0)
    (tmp_path / "a.tar").unlink()
    stream = InfiniteLoader(AugmentedDataset(source, corner), batch_size=2, seed=1, workers=workers)
    with pytest.raises(UsvitError, match=r"^There is no shard .*a\.tar\.$"):
        list(stream.iterate(0, 1))


def test_a_picture_is_rgb_whatever_the_file(tmp_path):
    (tmp_path / "x" / "a").mkdir(parents=True)
    for at, mode in enumerate(("L", "1", "P", "LA", "I;16")):
        Image.new(mode, (9, 7)).save(tmp_path / "x" / "a" / f"{at}.png")
    batch = AugmentedDataset(open_folder(tmp_path / "x"), corner).batch([(at, 0) for at in range(5)])
    assert batch["images"].shape == (5, 7, 9, 3)


LEAVING = """
import sys
import numpy as np
from usvit.data.loading.augmented_dataset import AugmentedDataset
from usvit.upstream.sources.folder import open_folder
from usvit.data.loading.infinite_loader import InfiniteLoader
from usvit.errors import UsvitError
from pathlib import Path

def whole(image, seed):
    return np.asarray(image)

stream = InfiniteLoader(AugmentedDataset(open_folder(Path(sys.argv[1])), whole), batch_size=3, seed=1, workers=2)
try:
    for batch in stream.iterate(0, 40):
        raise UsvitError("the loss is NaN")
except UsvitError as error:
    kept = error
(Path(sys.argv[1]) / "a" / "1.png").write_bytes(b"no picture")
try:
    list(stream.iterate(0, 40))
except UsvitError as error:
    sys.exit(2 if "1.png" in str(error) else 1)
"""


@pytest.mark.slow
def test_a_command_that_fails_leaves_no_worker_behind(cats):
    """Workers do not hear SIGTERM, by which Python would end them at exit: it would wait for ever."""
    done = subprocess.run([sys.executable, "-c", LEAVING, str(cats.root)], timeout=900, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr


def test_a_table_gives_each_image_its_own_label(divided, tmp_path):
    source = open_folder(divided, "train")
    names = [source.image_name(index) for index in range(len(source))]
    table = tmp_path / "labels.csv"
    rows = [f"{name},{'odd' if at % 2 else 'even'}" for at, name in enumerate(names)]
    table.write_text("image_id,label\n" + "\n".join(reversed(rows)) + "\nanother,odd\n")
    found = labelled_by(source, table, "train")
    assert found.classes == ("even", "odd") and found.targets.tolist() == [at % 2 for at in range(len(names))]
    assert refined(Subset(found, np.array([1]))).classes == source.classes
    assert found.listing_sha256() != source.listing_sha256()
    table.write_text("image_id,label\n" + "\n".join(rows[1:]) + "\n")
    with pytest.raises(UsvitError, match=r"no label for 1 images of the split 'val'.*source\.val=null"):
        labelled_by(source, table, "val")
    table.write_text("image_id,label\n" + "\n".join([*rows, rows[0]]) + "\n")
    with pytest.raises(UsvitError, match="two rows for the image"):
        labelled_by(source, table, "train")
    with pytest.raises(UsvitError, match=r"source\.labels and source\.coarse are both set"):
        open_source(config("folder", path=divided, labels=str(table), coarse="all"), {}, split="train", seed=0)


def test_all_is_one_class_of_every_image(divided):
    source = open_folder(divided, "train")
    one = coarsened(source, "all")
    assert one.classes == ("all",) and not one.targets.any() and refined(one) is source
