"""Image folders: classes, splits, decoding, what is refused."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.upstream.sources.layouts import class_tree, encoded, pixels, put
from usvit.data.datasets.labelled_images import StringArray
from usvit.data.io.bad_image import BadImage
from usvit.data.io.decoding import read_image
from usvit.data.io.image_hashes import pixel_sha256
from usvit.errors import UsvitError
from usvit.progress import NoProgress
from usvit.upstream.sources.folder import list_images, open_folder, open_unlabeled


def test_classes_are_the_folders_sorted_and_files_may_lie_deeper(tmp_path):
    class_tree(tmp_path, {"dog": 2, "cat": 1, "Zebra": 1})
    put(tmp_path / "cat" / "young" / "a.png", 7)
    source = open_folder(tmp_path)
    assert source.classes == ("Zebra", "cat", "dog")
    assert [source.image_name(at) for at in range(5)] == ["Zebra/0.png", "cat/0.png", "cat/young/a.png", *DOGS]
    assert source.targets.tolist() == [0, 1, 1, 2, 2]
    assert np.array_equal(np.asarray(source.image(2)), pixels(7))


DOGS = ["dog/0.png", "dog/1.png"]


def test_a_folder_agrees_with_torchvision(tmp_path):
    from torchvision.datasets import ImageFolder

    class_tree(tmp_path, {"b": 3, "a": 2, "c": 1})
    put(tmp_path / "b" / "deep" / "er" / "x.png", 9)
    source, theirs = open_folder(tmp_path), ImageFolder(str(tmp_path))
    ours = {str(source.root / source.files[at]): int(source.targets[at]) for at in range(len(source))}
    assert ours == dict(theirs.samples)


def test_splits_are_found_and_a_class_may_be_called_train(tmp_path):
    class_tree(tmp_path / "divided" / "train", {"cat": 2, "dog": 1})
    class_tree(tmp_path / "divided" / "val", {"cat": 1, "dog": 1})
    assert (len(open_folder(tmp_path / "divided")), len(open_folder(tmp_path / "divided", "val"))) == (3, 2)
    class_tree(tmp_path / "vehicles", {"train": 2, "car": 1})
    assert open_folder(tmp_path / "vehicles").classes == ("car", "train")
    with pytest.raises(UsvitError, match=r"no folder 'test', only train, val"):
        open_folder(tmp_path / "divided", "test")
    with pytest.raises(UsvitError, match=r"not divided into splits.*val_share"):
        open_folder(tmp_path / "vehicles", "val")
    with pytest.raises(UsvitError, match=r"folders train and test\.$"):  # a share kept back would be no test
        open_folder(tmp_path / "vehicles", "test")


def test_what_is_no_image_folder_is_refused(tmp_path):
    with pytest.raises(UsvitError, match="There is no folder"):
        open_folder(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsvitError, match=r"has no class folders\. Expected"):
        open_folder(tmp_path / "empty")
    put(tmp_path / "flat" / "1.png")
    with pytest.raises(UsvitError, match=r"only images .*'unlabeled'"):
        open_folder(tmp_path / "flat")
    put(tmp_path / "mixed" / "stray.png")
    put(tmp_path / "mixed" / "cat" / "1.png")
    with pytest.raises(UsvitError, match=r"1 images without a class \(stray.png"):
        open_folder(tmp_path / "mixed")
    class_tree(tmp_path / "hollow", {"cat": 1, "dog": 0})
    with pytest.raises(UsvitError, match="contain no images: dog"):
        open_folder(tmp_path / "hollow")


def test_masks_beside_their_images_are_refused_and_a_name_with_mask_alone_is_none(tmp_path):
    for name in ("benign (1)", "benign (1)_mask", "benign (1)_mask_1", "gas_mask"):
        put(tmp_path / "train" / "benign" / f"{name}.png")
    put(tmp_path / "train" / "normal" / "a.png")
    for opened in (open_folder, open_unlabeled):
        with pytest.raises(UsvitError, match=r"2 masks .*benign \(1\)_mask.*--dataset busi"):
            opened(tmp_path / "train")
    for mask in (tmp_path / "train" / "benign").glob("benign*_mask*"):
        mask.unlink()
    assert len(open_folder(tmp_path / "train")) == len(open_unlabeled(tmp_path / "train")) == 3


def test_unlabelled_images_lie_at_any_depth_and_hidden_ones_are_left_out(tmp_path):
    for name in ("z.png", "a/1.png", "a/b/2.JPEG", "c/3.webp", ".thumbs/4.png", "__MACOSX/5.png"):
        put(tmp_path / name, 1, {".JPEG": "JPEG", ".webp": "WEBP"}.get(Path(name).suffix, "PNG"))
    (tmp_path / "a" / "notes.txt").write_text("no image")
    source = open_unlabeled(tmp_path)
    assert list(source.files) == ["a/1.png", "a/b/2.JPEG", "c/3.webp", "z.png"]
    assert source.classes == () and set(source.targets) == {-1}
    assert all(source.image(at).mode == "RGB" for at in range(4))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsvitError, match="no images below"):
        open_unlabeled(tmp_path / "empty")


def test_a_link_that_leads_back_is_not_followed_for_ever(tmp_path):
    put(tmp_path / "a" / "1.png")
    (tmp_path / "a" / "back").symlink_to(tmp_path)
    assert list_images(tmp_path) == ["a/1.png"]


@pytest.mark.parametrize("content, said", [(b"", "empty"), (b"text", "no"), (encoded(1)[:200], "truncated")])
def test_an_unreadable_file_is_named(tmp_path, content, said):
    class_tree(tmp_path, {"cat": 1})
    (tmp_path / "cat" / "bad.png").write_bytes(content)
    source = open_folder(tmp_path)
    with pytest.raises(BadImage, match=said) as caught:
        source.image(1)
    assert caught.value.path == tmp_path / "cat" / "bad.png"


def test_hashes_are_those_of_the_whole_image_as_the_audit_reads_it(tmp_path):
    picture = Image.fromarray(pixels(3, 40)[:, :25])
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned
    (tmp_path / "a").mkdir()
    picture.save(tmp_path / "a" / "turned.jpg", exif=exif)
    Image.fromarray(pixels(4)).convert("RGBA").save(tmp_path / "a" / "clear.png")
    source = open_folder(tmp_path)
    expected = [pixel_sha256(read_image(tmp_path / "a" / name)) for name in ("clear.png", "turned.jpg")]
    assert source.hashes(NoProgress()) == expected
    assert source.hashes(NoProgress(), np.array([1])) == expected[1:]
    assert source.image(1).size == (40, 25)


def test_the_record_tells_lists_apart_and_names_no_path(tmp_path):
    first = open_folder(class_tree(tmp_path / "x", {"a": 2, "b": 1})).record().content()
    again = open_folder(class_tree(tmp_path / "y", {"a": 2, "b": 1})).record().content()
    other = open_folder(class_tree(tmp_path / "z", {"a": 1, "b": 2})).record().content()
    assert first == again != other
    assert (first["images"], first["classes"]) == (3, 2)
    assert str(tmp_path) not in str(first)


def test_many_names_stay_what_they_are():
    texts = ["a", "", "grün/é.png", "x" * 300, "b\udcff"]
    names = StringArray(texts)
    assert list(names) == texts and names[-1] == "b\udcff" and names[1:3] == texts[1:3]
    assert list(pickle.loads(pickle.dumps(names))) == texts
    with pytest.raises(IndexError):
        names[5]
