"""Named data sets in the layouts of their releases, against torchvision and literal readings of their lists."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import REPOSITORY
from tests.upstream.sources import layouts
from usvit.data.datasets.labelled_images import refined
from usvit.errors import UsvitError
from usvit.upstream.config.pretrain import SourceConfig
from usvit.upstream.sources.catalog import SOURCES, VTAB_TASKS
from usvit.upstream.sources.imagenet import wnids
from usvit.upstream.sources.open import BY_PATH, named_sets, open_source
from usvit.upstream.sources.vtab import DISTANCE_CLASSES, FULL_IMAGES, distance_class, split_drives


def opened(name, root, split, **settings):
    return open_source(SourceConfig(name=name, **settings), {name: root}, split=split, seed=0)


def same(source, theirs):
    """Every image and label in torchvision's order."""
    assert len(source) == len(theirs)
    for at in range(len(theirs)):
        picture, label = theirs[at]
        assert source.targets[at] == label
        assert np.array_equal(np.asarray(source.image(at)), np.asarray(picture.convert("RGB")))


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory):
    return layouts.write_imagenet(tmp_path_factory.mktemp("set") / "imagenet", wnids())


# CIFAR


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_agrees_with_torchvision(tmp_path, monkeypatch, name):
    from torchvision.datasets import CIFAR10, CIFAR100

    layouts.write_cifar(tmp_path, name, monkeypatch)
    release = CIFAR10 if name == "cifar10" else CIFAR100
    for split in ("train", "test"):
        source = opened(name, tmp_path, split)
        same(source, release(tmp_path, train=split == "train"))
        assert list(source.classes) == release(tmp_path).classes
    assert len(opened(name, tmp_path / release.base_folder, "test")) == len(source)


def test_cifar_100_has_its_superclasses(tmp_path, monkeypatch):
    written = layouts.write_cifar(tmp_path, "cifar100", monkeypatch)
    coarse = opened("cifar100", tmp_path, "train", coarse="superclass")
    names = [coarse.classes[target] for target in coarse.targets]
    assert names == [f"group{label}" for label in written["train"]["coarse_labels"]]
    assert len(coarse.classes) == 20 and refined(coarse).targets.tolist() == written["train"]["fine_labels"]


def test_a_pickle_that_is_not_the_release_is_never_loaded(tmp_path, monkeypatch):
    layouts.write_cifar(tmp_path, "cifar10", monkeypatch)
    path = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    # A pickle that makes a file when it is read.
    trap = tmp_path / "trapped"
    path.write_bytes(f"cposix\nsystem\n(S'touch {trap}'\ntR.".encode())
    with pytest.raises(UsvitError, match=r"data_batch_3 is not the file of the release"):
        opened("cifar10", tmp_path, "train")
    assert not trap.exists()


# Lists of the releases


def test_flowers_agree_with_torchvision(tmp_path, monkeypatch):
    from torchvision.datasets import Flowers102

    layouts.write_flowers(tmp_path, monkeypatch)
    for split in ("train", "val", "test"):
        same(opened("flowers102", tmp_path, split), Flowers102(tmp_path, split))
    both = opened("flowers102", tmp_path, "train+val")
    assert both.targets.tolist() == [6, 101, 49, 0] and len(both.classes) == 102
    assert opened("flowers102", tmp_path / "flowers-102", "val").targets.tolist() == [49, 0]


def test_pets_agree_with_torchvision(tmp_path):
    from torchvision.datasets import OxfordIIITPet

    layouts.write_pets(tmp_path)
    for split in ("trainval", "test"):
        source = opened("pets", tmp_path, split)
        same(source, OxfordIIITPet(tmp_path, split))
        assert source.classes == ("Abyssinian", "Bengal", "yorkshire_terrier")


def test_cars_agree_with_torchvision(tmp_path):
    from torchvision.datasets import StanfordCars

    layouts.write_cars(tmp_path)
    for split in ("train", "test"):
        source, theirs = opened("cars", tmp_path, split), StanfordCars(tmp_path, split)
        same(source, theirs)
        assert list(source.classes) == theirs.classes


def test_food_agrees_with_torchvision(tmp_path):
    from torchvision.datasets import Food101

    layouts.write_food(tmp_path)
    for split in ("train", "test"):
        source, theirs = opened("food101", tmp_path, split), Food101(tmp_path, split)
        ours = {(str(source.root / source.files[at]), int(source.targets[at])) for at in range(len(source))}
        assert ours == {(str(file), label) for file, label in zip(theirs._image_files, theirs._labels, strict=True)}
        assert source.classes == ("apple_pie", "waffles")


def test_resisc_reads_lists_and_needs_none_for_all(tmp_path):
    root = tmp_path / "NWPU-RESISC45"
    labels = ["airplane", "sea_ice", *(f"z{number:02d}" for number in range(43))]
    for at, label in enumerate(labels):
        for number in (1, 2):
            layouts.put(root / label / f"{label}_{number:03d}.jpg", 2 * at + number, "JPEG")
    assert len(opened("resisc45", tmp_path, "all")) == 90
    with pytest.raises(UsvitError, match=r"no list resisc45-val.txt.*val_share"):
        opened("resisc45", tmp_path, "val")
    (tmp_path / "resisc45-val.txt").write_text("sea_ice_002.jpg\nairplane_001.jpg\n")
    source = opened("resisc45", tmp_path, "val")
    assert source.targets.tolist() == [1, 0] and source.image_name(0) == "sea_ice/sea_ice_002.jpg"
    (tmp_path / "resisc45-val.txt").write_text("desert_001.jpg\n")
    with pytest.raises(UsvitError, match=r"desert_001.jpg, which is in none of the class folders"):
        opened("resisc45", tmp_path, "val")


# iNaturalist


def test_inaturalist_reads_its_json_and_its_taxonomy(tmp_path):
    layouts.write_inat(tmp_path)
    source = opened("inat18", tmp_path, "train")
    assert list(source.files) == sorted(source.files)
    by_file = {source.image_name(at): source.classes[source.targets[at]] for at in range(4)}
    assert by_file == {
        "train_val2018/Aves/2/d0.jpg": "Corvus corone",
        "train_val2018/Plantae/0/c0.jpg": "Acer rubrum",
        "train_val2018/Aves/1/b0.jpg": "Corvus corax",
        "train_val2018/Aves/2/a0.jpg": "Corvus corone",
    }
    val = opened("inat18", tmp_path, "val", coarse="order")
    assert sorted(val.classes) == ["Passeriformes", "Sapindales"]
    assert [val.classes[target] for target in val.targets] == ["Passeriformes", "Sapindales"]
    with pytest.raises(UsvitError, match=r"'tribe', which is neither a file nor a level.*kingdom, order, genus"):
        opened("inat18", tmp_path, "val", coarse="tribe")


def test_inaturalist_reads_without_the_taxonomy(tmp_path):
    layouts.write_inat(tmp_path, 2019)
    (tmp_path / "categories.json").unlink()
    source = opened("inat19", tmp_path, "train")
    assert source.classes == ("0", "1", "2") and list(source.levels) == ["supercategory"]
    (tmp_path / "train2019.json").write_text('{"images": []}')
    with pytest.raises(UsvitError, match=r"train2019.json or categories.json lacks"):
        opened("inat19", tmp_path, "train")
    (tmp_path / "train2019.json").write_text("{")
    with pytest.raises(UsvitError, match=r"train2019.json is damaged"):
        opened("inat19", tmp_path, "train")


@pytest.mark.slow
def test_a_list_cannot_lead_out_of_its_folder(tmp_path):
    layouts.write_inat(tmp_path)
    content = json.loads((tmp_path / "val2018.json").read_text())
    content["images"][0]["file_name"] = "../../secret.jpg"
    (tmp_path / "val2018.json").write_text(json.dumps(content))
    with pytest.raises(UsvitError, match="leads out of the data set's folder"):
        opened("inat18", tmp_path, "val")


# ImageNet


@pytest.mark.slow
def test_imagenet_counts_its_classes_by_wordnet_id(imagenet):
    source = opened("imagenet", imagenet.parent, "train")
    assert source.targets.tolist() == [0, 3, 999] and source.classes[0] == "n01440764"
    assert opened("imagenet", imagenet, "val").targets.tolist() == [65, 230, 809, 970]


@pytest.mark.slow
@pytest.mark.parametrize("flat", ["devkit", "kaggle"])
def test_a_flat_validation_folder_has_its_labels_from_a_list(tmp_path, flat):
    layouts.write_imagenet(tmp_path, wnids(), flat=flat)
    source = opened("imagenet", tmp_path, "val")
    # The first validation images are of the classes 65, 970, 230, 809, as everywhere published.
    assert source.targets.tolist() == [65, 970, 230, 809]
    assert source.image_name(0) == "ILSVRC2012_val_00000001.JPEG"


@pytest.mark.slow
def test_a_flat_validation_folder_without_a_list_is_refused(tmp_path):
    layouts.write_imagenet(tmp_path, wnids(), flat="none")
    with pytest.raises(UsvitError, match="there is no list of the classes"):
        opened("imagenet", tmp_path, "val")
    for text in (
        "ImageId\nx_1\n",
        "a,b\n1,2\n",
        "ImageId,PredictionString\nx,\n",
        f"ImageId,PredictionString\n{'a' * 200_000},b\n",
    ):
        (tmp_path / "LOC_val_solution.csv").write_text(text)
        with pytest.raises(UsvitError, match=r"LOC_val_solution\.csv is not the list of the Kaggle"):
            opened("imagenet", tmp_path, "val")


def test_some_classes_of_imagenet_are_refused(tmp_path):
    layouts.put(tmp_path / "train" / wnids()[5] / "1.JPEG", 0, "JPEG")
    with pytest.raises(UsvitError, match=r"train lacks 999 of 1000 class folders \(n01440764.*the source 'folder'"):
        opened("imagenet", tmp_path, "train")


@pytest.mark.slow
def test_reassessed_labels_are_those_that_timm_counts_with(imagenet):
    from timm.data.real_labels import RealLabelsImagenet

    source = opened("imagenet_real", imagenet, "val")
    numbers = [int(Path(source.image_name(at)).stem.rpartition("_")[2]) for at in range(len(source))]
    names = [f"ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, 50_001)]
    theirs = RealLabelsImagenet(names).real_labels
    assert [list(labels) for labels in source.multi] == [theirs[names[number - 1]] for number in numbers]
    assert sorted(numbers) == [number for number in range(1, 5) if theirs[names[number - 1]]]


def test_images_without_a_reassessed_label_are_left_out(tmp_path, imagenet):
    (tmp_path / "val").symlink_to(imagenet / "val")
    (tmp_path / "real.json").write_text(json.dumps([[65, 12], [], [230], [7]]))
    source = opened("imagenet_real", tmp_path, "val")
    found = {source.image_name(at)[-13:-5]: source.multi[at] for at in range(3)}
    assert found == {"00000001": (65, 12), "00000003": (230,), "00000004": (7,)}
    assert len(source.classes) == 1000 and source.left_out == 1
    (tmp_path / "real.json").write_text(json.dumps([[65], [], [230]]))
    with pytest.raises(UsvitError, match=r"real.json has labels of 3 images, but val holds 4"):
        opened("imagenet_real", tmp_path, "val")
    (tmp_path / "real.json").write_text("[[1000]]")
    with pytest.raises(UsvitError, match=r"real.json is not a list of lists"):
        opened("imagenet_real", tmp_path, "val")


@pytest.mark.slow
def test_imagenet_v2_counts_its_folders_as_numbers(tmp_path):
    """Sorted as text, 10 comes before 2: 998 of 1,000 classes would be wrong."""
    root = tmp_path / "imagenetv2-matched-frequency-format-val"
    for number in range(1000):
        (root / str(number)).mkdir(parents=True)
    for number in (2, 9, 10, 999):
        layouts.put(root / str(number) / "a.jpeg", number, "JPEG")
    source = opened("imagenet_v2", tmp_path, "matched-frequency")
    assert source.targets.tolist() == [2, 9, 10, 999]
    assert [source.image_name(at) for at in range(4)] == [f"{number}/a.jpeg" for number in (2, 9, 10, 999)]
    assert source.classes == wnids()
    with pytest.raises(UsvitError, match="no folder imagenetv2-top-images"):
        opened("imagenet_v2", tmp_path, "top-images")
    (root / "17").rmdir()
    with pytest.raises(UsvitError, match="lacks 1 of the folders 0 to 999"):
        opened("imagenet_v2", tmp_path, "matched-frequency")


def test_imagenet_21k_is_a_folder_a_class_or_divided(tmp_path, imagenet):
    layouts.class_tree(tmp_path / "fall11", {"n00004475": 2, "n01440764": 1})
    source = opened("imagenet21k", tmp_path / "fall11", "train")
    assert source.classes == ("n00004475", "n01440764") and len(source) == 3
    with pytest.raises(UsvitError, match=r"no folder val or imagenet21k_val; use source.val_share"):
        opened("imagenet21k", tmp_path / "fall11", "val")
    layouts.class_tree(tmp_path / "p" / "imagenet21k_train", {"n00004475": 2, "n00005787": 1})
    layouts.class_tree(tmp_path / "p" / "imagenet21k_val", {"n00004475": 1, "n00005787": 1})
    assert len(opened("imagenet21k", tmp_path / "p", "val")) == 2
    with pytest.raises(UsvitError, match="it does not have the expected layout"):
        opened("imagenet21k", imagenet, "train")  # the small one


# KITTI


def test_kitti_classes_follow_the_benchmark():
    """task_adaptation: thrs = [-100, 8, 20, 999]; label = max(where(thrs - dist < 0)); 1000 m without a vehicle."""

    def line(kind, z):
        return f"{kind} 0.00 0 -1.57 1 1 2 2 1.5 1.6 3.5 0.10 1.70 {z} 0.01"

    def theirs(rows):
        vehicles = [np.float32(z) for kind, z in rows if ["Car", "Van", "Truck", "Pedestrian"].index(kind) < 3]
        thresholds = np.array([-100.0, 8.0, 20.0, 999.0], dtype=np.float32)
        return int(np.max(np.where((thresholds - min([*vehicles, np.float32(1000)])) < 0)))

    for rows in (
        [("Car", 30.0), ("Van", 7.99)],
        [("Truck", 8.0)],
        [("Car", 8.01), ("Pedestrian", 1.0)],
        [("Car", 20.0)],
        [("Car", 20.01), ("Car", 88.2)],
        [("Pedestrian", 3.0)],
        [],
    ):
        assert distance_class([line(*row) for row in rows]) == theirs(rows)
    assert distance_class([line("Tram", 3.0), line("DontCare", -1000)]) == 3
    assert len(DISTANCE_CLASSES) == 4


def test_kitti_drives_are_divided_as_tensorflow_datasets_divides_them(tmp_path):
    drives = layouts.write_kitti(tmp_path)

    # _build_splits of tensorflow_datasets' kitti.py, literally.
    legacy = np.random.RandomState(123)  # the same numbers as np.random.seed(123) and np.random.choice
    known = sorted(set(drives))
    test = set(legacy.choice(known, max(1, 10 * len(known) // 100), replace=False))
    val = set(legacy.choice(sorted(set(known) - test), max(1, 10 * len(known) // 100), replace=False))

    parts = split_drives(drives)
    assert (parts["test"], parts["val"]) == (test, val)
    seen = []
    for split in ("train", "val", "test"):
        source = opened("kitti_distance", tmp_path, split)
        numbers = [int(Path(source.image_name(at)).stem) for at in range(len(source))]
        assert {drives[number] for number in numbers} == parts[split]
        # the car of scene n is 5.25 + n metres away
        assert source.targets.tolist() == [0 if n <= 2 else 1 if n <= 14 else 2 for n in numbers]
        seen += numbers
    assert sorted(seen) == list(range(40))


def test_kitti_without_the_mapping_is_not_divided(tmp_path):
    layouts.write_kitti(tmp_path)
    for path in (tmp_path / "mapping").iterdir():
        path.unlink()
    (tmp_path / "mapping").rmdir()
    assert len(opened("kitti_distance", tmp_path, "all")) == 40
    with pytest.raises(UsvitError, match="the mapping of the object devkit"):
        opened("kitti_distance", tmp_path, "train")


# VTAB


def test_vtab_lists_are_read_as_they_stand(tmp_path):
    for at in range(3):
        layouts.put(tmp_path / "vtab-1k" / "svhn" / "images" / "train" / f"{at}.jpg", at, "JPEG")
    folder = tmp_path / "vtab-1k" / "svhn"
    (folder / "train800.txt").write_text("images/train/2.jpg 9\nimages/train/0.jpg 0\n")
    (folder / "train800val200.txt").write_text("images/train/2.jpg 9\nimages/train/0.jpg 0\nimages/train/1.jpg 3\n")
    for root in (tmp_path, tmp_path / "vtab-1k", folder):
        source = opened("vtab_svhn", root, "train800")
        assert source.targets.tolist() == [9, 0] and len(source.classes) == 10
        assert source.image_name(0) == "images/train/2.jpg" and source.image(0).size == (12, 12)
    with pytest.raises(UsvitError, match=r"Unknown split of vtab_svhn 'trainval'.*train800val200"):
        opened("vtab_svhn", folder, "trainval")
    with pytest.raises(UsvitError, match=r"train\.txt cannot be read: it does not exist"):
        opened("vtab_svhn", folder, "train")
    (folder / "test.txt").write_text("images/train/2.jpg 10\n")
    with pytest.raises(
        UsvitError, match=r"a line of test.txt is not a path and a class from 0 to 9: images/train/2.jpg 10"
    ):
        opened("vtab_svhn", folder, "test")
    with pytest.raises(UsvitError, match="it does not have the expected layout"):
        opened("vtab_dtd", tmp_path / "vtab-1k", "test")


def test_full_vtab_has_the_numbers_of_images_of_the_benchmark(tmp_path):
    """Shares of the official training sets that task_adaptation divides; the others have official splits."""
    shares = {"caltech101": (3060, 90), "cifar": (50000, 90), "clevr_count": (70000, 90), "clevr_dist": (70000, 90)}
    shares |= {"oxford_iiit_pet": (3680, 80), "svhn": (73257, 90)}
    assert {task: FULL_IMAGES[task] for task in shares} == {
        task: (images * percent // 100, images - images * percent // 100) for task, (images, percent) in shares.items()
    }
    for task, images in {"eurosat": 27000, "resisc45": 31500}.items():
        assert FULL_IMAGES[task] == (0.6 * images, 0.2 * images)
    assert FULL_IMAGES.keys() == VTAB_TASKS.keys()
    line = "images/a.png 0\n"
    folder = tmp_path / "dtd"
    folder.mkdir()
    for split, count in {"train": 1880, "val": 1879}.items():
        (folder / f"{split}.txt").write_text(line * count)
    assert len(opened("vtab_dtd", tmp_path, "train")) == 1880
    with pytest.raises(UsvitError, match=r"val\.txt lists 1,879 images, and the split of full VTAB has 1,880"):
        opened("vtab_dtd", tmp_path, "val")


def test_vtab_has_nineteen_tasks_with_the_classes_that_are_published():
    natural = {"caltech101": 102, "cifar": 100, "dtd": 47, "oxford_flowers102": 102, "oxford_iiit_pet": 37}
    natural |= {"sun397": 397, "svhn": 10}
    specialised = {"eurosat": 10, "resisc45": 45, "patch_camelyon": 2, "diabetic_retinopathy": 5}
    structured = {"clevr_count": 8, "clevr_dist": 6, "dmlab": 6, "dsprites_loc": 16, "dsprites_ori": 16, "kitti": 4}
    structured |= {"smallnorb_azi": 18, "smallnorb_ele": 9}
    assert (len(natural), len(specialised), len(structured)) == (7, 4, 8)
    assert natural | specialised | structured == VTAB_TASKS


# All of them


def test_every_source_is_described_and_every_description_has_a_source():
    assert set(SOURCES) == {*named_sets(), *BY_PATH, "fractals", "phantom", "data", "torchvision:NAME"}


@pytest.mark.parametrize("name", sorted(named_sets()))
def test_missing_data_say_what_is_expected(tmp_path, name, monkeypatch):
    monkeypatch.delenv("USVIT_DATA", raising=False)
    one = named_sets()[name]
    with pytest.raises(UsvitError, match=f"The folder of {name} is not known.*--data-root") as caught:
        open_source(SourceConfig(name=name), {}, split=one.splits[0], seed=0)
    assert one.layout.splitlines()[0] in str(caught.value)
    (tmp_path / "something").mkdir()
    monkeypatch.setenv("USVIT_DATA", str(tmp_path))
    with pytest.raises(UsvitError, match=f"Cannot read the data set {name}.*Found: something"):
        open_source(SourceConfig(name=name), {}, split=one.splits[0], seed=0)
    with pytest.raises(UsvitError, match=f"(?s)Unknown split of {name} 'trial'.*{one.splits[-1]}"):
        open_source(SourceConfig(name=name), {}, split="trial", seed=0)


def test_the_listing_of_names_is_quick_and_knows_no_torch():
    import subprocess
    import sys

    code = (
        "import sys; from usvit.upstream.sources.catalog import SOURCES; print({'torch', 'scipy'} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"


def test_an_image_that_is_listed_but_missing_is_named(tmp_path):
    layouts.write_pets(tmp_path)
    (tmp_path / "oxford-iiit-pet" / "images" / "Bengal_1.jpg").unlink()
    source = opened("pets", tmp_path, "trainval")
    with pytest.raises(UsvitError, match=r"Bengal_1.jpg: there is no such file"):
        source.image(2)


def test_pictures_of_any_kind_become_rgb(tmp_path):
    layouts.write_pets(tmp_path)
    path = tmp_path / "oxford-iiit-pet" / "images" / "Bengal_1.jpg"
    Image.new("CMYK", (8, 6), (10, 20, 30, 40)).save(path, "JPEG")
    assert opened("pets", tmp_path, "trainval").image(2).mode == "RGB"


def test_the_reference_page_has_every_source_and_its_splits():
    page = (REPOSITORY / "docs" / "reference" / "sources.md").read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip(" `"): line for line in page.splitlines() if line.startswith("| `")}
    for name, one in named_sets().items():
        if name.startswith("vtab_"):
            assert f"`{name.removeprefix('vtab_')}`" in page
            name = "vtab_<task>"
        assert ", ".join(one.splits) in rows[name]
    assert {name for name in SOURCES if not name.startswith("vtab_")} <= set(rows)
