"""Parts, unions, other classes: what is drawn, and that labels keep their meaning."""

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

from tests.upstream.sources.layouts import class_tree, pixels, put
from usvit.data.datasets.labelled_images import ConcatDataset, Subset, refined
from usvit.errors import UsvitError
from usvit.progress import NoProgress
from usvit.upstream.sources.folder import FileSource, open_folder, open_unlabeled
from usvit.upstream.sources.open import aligned, coarsened, draw, keep_back, limited


def listed(counts, classes=None):
    """A source of labels alone."""
    targets = np.repeat(np.arange(len(counts)), counts)
    files = [f"{at}.png" for at in range(len(targets))]
    return FileSource("made", None, files, classes or [f"c{at}" for at in range(len(counts))], targets)


@pytest.mark.parametrize("count", [1, 7, 30, 60, 111])
def test_every_class_has_its_share_of_a_draw(count):
    counts = np.array([60, 30, 15, 5, 1])
    source = listed(counts)
    for seed in range(5):
        drawn = draw(source, count, np.random.default_rng(seed))
        assert len(set(drawn)) == count and drawn.tolist() == sorted(drawn)
        found = np.bincount(source.targets[drawn], minlength=5)
        assert np.all(np.abs(found - count * counts / 111) <= 1)


def test_a_draw_is_random_within_a_class_and_follows_its_generator():
    source = listed([50])
    seen = np.zeros(50)
    for seed in range(200):
        seen[draw(source, 10, np.random.default_rng(seed))] += 1
    assert seen.min() > 15 and seen.max() < 70  # 40 each, with a standard deviation of 5.7
    assert np.array_equal(draw(source, 10, np.random.default_rng(1)), draw(source, 10, np.random.default_rng(1)))


def test_what_is_kept_back_is_no_training_image():
    source = listed([40, 20])
    training, validation = keep_back(source, 0.1, np.random.default_rng(0))
    assert sorted([*training.indices, *validation.indices]) == list(range(60))
    assert np.bincount(validation.targets).tolist() == [4, 2]
    assert training.classes == validation.classes == source.classes
    with pytest.raises(UsvitError, match="leaves no training images"):
        keep_back(listed([1]), 0.5, np.random.default_rng(0))


def test_a_limit_keeps_the_classes():
    source = limited(listed([40, 20, 1]), 6, np.random.default_rng(0))
    assert len(source) == 6 and len(source.classes) == 3
    whole = listed([3])
    assert limited(whole, 3, np.random.default_rng(0)) is whole


def test_a_part_of_a_part_shows_its_own_images(tmp_path):
    source = open_folder(class_tree(tmp_path, {"a": 4, "b": 4}))
    part = Subset(Subset(source, np.array([7, 1, 4, 0])), np.array([2, 0]))
    assert [part.image_name(at) for at in range(2)] == ["b/0.png", "b/3.png"]
    assert np.array_equal(np.asarray(part.image(1)), pixels(103))
    whole = source.hashes(NoProgress())
    assert part.hashes(NoProgress()) == [whole[4], whole[7]]
    assert sorted(part.order(np.random.default_rng(0))) == [0, 1]
    record = part.record().content()
    assert (record["images"], record["of_images"]) == (2, 4)
    assert record["listing_sha256"] != Subset(source, np.array([4, 0])).record().content()["listing_sha256"]


def test_a_part_keeps_the_order_of_the_whole():
    source = listed([30])
    part = Subset(source, np.arange(0, 30, 3))
    whole = source.order(np.random.default_rng(5))
    assert part.indices[part.order(np.random.default_rng(5))].tolist() == [at for at in whole if at % 3 == 0]


class MadeOnTheFly(FileSource):
    def hashes(self, progress, indices=None):
        return None


def test_a_union_is_unlabelled_mixed_and_hashes_what_can_be_hashed(tmp_path):
    files = open_folder(class_tree(tmp_path / "x", {"a": 3, "b": 1}))
    made = MadeOnTheFly("made", tmp_path / "x", ["a/0.png"] * 36, (), [-1] * 36)
    union = ConcatDataset("made+files", [made, files], labelled=False)
    assert union.classes == () and set(union.targets) == {-1} and len(union) == 40
    assert np.array_equal(np.asarray(union.image(39)), pixels(100))
    assert union.hashes(NoProgress()) == files.hashes(NoProgress())
    assert union.hashes(NoProgress(), np.array([39, 0])) == files.hashes(NoProgress())[3:]
    assert ConcatDataset("made", [made], labelled=False).hashes(NoProgress()) is None
    order = union.order(np.random.default_rng(0))
    assert sorted(order) == list(range(40))
    assert len(union.record().content()["parts"]) == 2


def test_the_parts_of_a_union_come_evenly():
    union = ConcatDataset("two", [listed([900]), listed([100])], labelled=False)
    order = union.order(np.random.default_rng(0))
    assert [np.sum(order[start : start + 100] >= 900) for start in range(0, 1000, 100)] == pytest.approx(
        [10] * 10, abs=2
    )


def test_validation_labels_are_counted_as_the_training_s(tmp_path):
    """Sorted folders alone would give dog the number 1 in training and 0 in validation."""
    training = open_folder(class_tree(tmp_path / "t", {"cat": 1, "dog": 2, "eel": 1}))
    validation = open_folder(class_tree(tmp_path / "v", {"dog": 1, "eel": 2}))
    fits = aligned(validation, training.classes, "the training")
    assert fits.classes == training.classes and fits.targets.tolist() == [1, 2, 2]
    assert np.array_equal(np.asarray(fits.image(1)), pixels(100))
    other = open_folder(class_tree(tmp_path / "o", {"dog": 1, "fox": 1}))
    with pytest.raises(UsvitError, match=r"1 classes that the training does not have \(fox\)"):
        aligned(other, training.classes, "the training")
    put(tmp_path / "u" / "1.png")
    with pytest.raises(UsvitError, match="have no labels"):
        aligned(open_unlabeled(tmp_path / "u"), training.classes, "the training")


def test_coarse_classes_come_from_a_table(tmp_path):
    source = listed([2, 1, 1], ["cat", "oak", "dog"])
    table = tmp_path / "coarse.csv"
    table.write_text("class,coarse\ndog,animal\ncat,animal\noak,plant\n")
    coarse = coarsened(source, str(table))
    assert coarse.classes == ("animal", "plant") and coarse.targets.tolist() == [0, 0, 1, 0]
    part = refined(Subset(coarse, np.array([3, 0])))
    assert part.classes == source.classes and part.targets.tolist() == source.targets[[3, 0]].tolist()


@pytest.mark.parametrize(
    "text, said",
    [
        ("class,coarse\ncat,animal\ndog,animal\n", r"no coarse class for 1 classes of made: oak"),
        ("class,coarse\ncat,animal\ncat,plant\n", "'cat' two coarse classes: animal and plant"),
        ("class,coarse\ncta,animal\n", r"Unknown class 'cta'. Nearest: cat"),
        ("class,coarse\ncat,\n", "a row without"),
        ("fine,coarse\ncat,animal\n", "class"),
        ("", "Cannot read .*coarse.csv"),
        ("class,coarse\ncat,animal,plant\ncat,a,b,c\n", "Cannot read .*coarse.csv"),
        (f"class,coarse\ncat,{'a' * 200_000}\n", "no coarse class for 2 classes"),  # longer than csv allows
        ("class,coarse\n", "no coarse class for 3 classes"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path, text, said):
    (tmp_path / "coarse.csv").write_text(text)
    with pytest.raises(UsvitError, match=said):
        coarsened(listed([2, 1, 1], ["cat", "oak", "dog"]), str(tmp_path / "coarse.csv"))


def test_unlabelled_images_have_no_coarse_classes(tmp_path):
    put(tmp_path / "1.png")
    with pytest.raises(UsvitError, match="have no labels"):
        coarsened(open_unlabeled(tmp_path), "superclass")


@pytest.mark.slow
def test_a_source_is_a_torch_dataset_of_pictures(tmp_path):
    source = open_folder(class_tree(tmp_path, {"a": 2, "b": 3}))
    loader = DataLoader(source, batch_size=None, num_workers=1)
    assert isinstance(source, Dataset) and len(loader) == 5
    assert [np.asarray(picture).tolist() for picture in loader] == [np.asarray(source[at]).tolist() for at in range(5)]
    assert len(list(source)) == 5
