import shutil

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.upstream.studies.shift.conftest import FAR, NEAR
from usvit.config import DataConfig
from usvit.data.datasets import prepare
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.errors import LeakageError, UsvitError
from usvit.progress import NO_PROGRESS
from usvit.upstream.studies.shift.sets import open_sets, parse_sources


def opened(*texts, by=None, keep_list=None, **settings):
    return open_sets(parse_sources(texts, DataConfig(**settings), {}), by, NO_PROGRESS, keep_list=keep_list)


def test_folders_of_one_card_become_data_sets_of_their_own(scanners):
    sets = opened(f"a={scanners / 'near'}", str(scanners / "far"))
    assert sets.names == ("a", "far")
    assert list(sets.manifest.roots) == ["a", "far"] and set(sets.cards.values()) == {"phantom"}
    table = sets.table()
    assert len(table) == 192 and not table.duplicated(["dataset", "image_id"]).any()
    # p001 of one phantom is another patient than p001 of the other.
    assert table.group_id[table.set == "a"].str.startswith("patient:a:").all()
    assert set(sets.only("far").table.dataset) == {"far"} and list(sets.only("far").roots) == ["far"]


def test_the_values_of_a_column_are_the_sets(scanners):
    sets = opened(f"a={scanners / 'near'}", f"b={scanners / 'far'}", by="device")
    assert sets.names == (NEAR, FAR)
    table = sets.table()
    assert table.groupby("set").dataset.nunique().tolist() == [1, 1]


def test_a_manifest_is_a_set(scanners, tmp_path):
    prepare("phantom", roots={"": scanners / "near"}, out=tmp_path / "near.parquet")
    sets = opened(str(tmp_path / "near.parquet"), f"far={scanners / 'far'}")
    assert sets.names == ("near", "far") and sets.cards == {"near": "phantom", "far": "phantom"}


def test_a_keep_list_names_data_sets_as_the_sets_are_named(scanners, tmp_path):
    first = opened(f"a={scanners / 'near'}", f"b={scanners / 'far'}").table()
    kept = first[(first.set == "b") | first.patient_id.isin(sorted(set(first.patient_id))[:30])]
    kept[["dataset", "image_id"]].to_csv(tmp_path / "keep.csv", index=False)
    sets = opened(f"a={scanners / 'near'}", f"b={scanners / 'far'}", keep_list=str(tmp_path / "keep.csv"))
    assert len(sets.table()) == len(kept) < len(first)


@pytest.mark.parametrize(
    ("texts", "by", "says"),
    [
        (["a={near}"], None, "only one is named"),
        (["a={near}", "a={far}"], None, "Two sets are called 'a'"),
        (["a={near}", "nosuch"], None, "'nosuch' is not a set"),
        (["a={near}", "busi=busii"], None, "is not a set"),
        (["a={near}"], "device", "there is only one"),
        (["a={near}", "b={far}"], "hospital", "no such column to divide them by; columns with several values: dataset"),
        (["a={near}", "b={far}"], "patient_id", "no such column"),
        (["a={near}", "b={far}"], "birads", "no such column"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_what_to_do(scanners, texts, by, says):
    texts = [text.format(near=scanners / "near", far=scanners / "far") for text in texts]
    with pytest.raises(UsvitError, match=says):
        opened(*texts, by=by)


def folder_of(path, classes, n, seed):
    """Write random images in class folders."""
    rng = np.random.default_rng(seed)
    for label in classes:
        (path / label).mkdir(parents=True)
        for k in range(n):
            Image.fromarray(rng.integers(0, 255, (64, 64), dtype=np.uint8)).save(path / label / f"{k}.png")
    return path


def test_sets_of_different_classes_are_refused_and_the_common_ones_are_named(scanners, tmp_path):
    other = folder_of(tmp_path / "own", ("benign", "malignant"), 8, 0)
    with pytest.raises(UsvitError, match=r"has benign, malignant.*data.classes=\[benign,malignant\]"):
        opened(f"a={scanners / 'near'}", f"own={other}")
    assert opened(f"a={scanners / 'near'}", f"own={other}", classes=("benign", "malignant")).names == ("a", "own")


def test_a_set_of_too_few_patients_of_a_side_is_refused(scanners, tmp_path):
    other = folder_of(tmp_path / "own", ("benign", "malignant", "normal"), 4, 1)
    with pytest.raises(UsvitError, match=r"'own' has 4 patients .* at least 5 of each"):
        opened(f"a={scanners / 'near'}", f"own={other}")


def test_a_device_of_one_class_is_refused(scanners, tmp_path):
    folder = tmp_path / "mixed"
    shutil.copytree(scanners / "near", folder)
    table = pd.read_csv(folder / "phantom.csv", dtype=str, keep_default_na=False)
    table["device"] = np.where(table.label == "malignant", "A", "B")
    table.to_csv(folder / "phantom.csv", index=False)
    with pytest.raises(UsvitError, match=r"The device '[AB]' has"):
        opened(f"mixed={folder}", by="device")
    table["device"] = np.where(np.arange(len(table)) % 2, "A", "B")  # patients were scanned on both
    table.to_csv(folder / "phantom.csv", index=False)
    with pytest.raises(LeakageError, match="have images in two values of device"):
        opened(f"mixed={folder}", by="device")
    table["device"] = table.device.where(table.label == "benign", "")
    table.to_csv(folder / "phantom.csv", index=False)
    with pytest.raises(UsvitError, match="images have no device"):
        opened(f"mixed={folder}", by="device")


@pytest.mark.slow
def test_sets_that_share_a_near_duplicate_are_refused(tmp_path):
    one = write_phantom(PhantomSpec(n=36, seed=1, size=256), tmp_path / "one", workers=1)
    for label in ("benign", "malignant", "normal"):
        (tmp_path / "two" / label).mkdir(parents=True)
    folder_of(tmp_path / "more", ("benign", "malignant", "normal"), 8, 2)
    shutil.copytree(tmp_path / "more", tmp_path / "two", dirs_exist_ok=True)
    stolen = next(path for path in sorted((one / "benign").iterdir()) if "mask" not in path.name)
    with Image.open(stolen) as image:
        image.crop((6, 4, 250, 252)).save(tmp_path / "two" / "benign" / "cropped.png")
    with pytest.raises(LeakageError, match="share images: 1 pairs of near-duplicates, 0 of them with identical pixels"):
        opened(f"a={one}", f"b={tmp_path / 'two'}")


def test_phantoms_of_one_seed_have_the_same_patients(tmp_path):
    one, twin = (
        write_phantom(PhantomSpec(n=3, seed=1, size=size), tmp_path / str(size), workers=1) for size in (64, 65)
    )
    with pytest.raises(LeakageError, match=r"phantoms of the same seed \(1\)"):
        opened(f"a={one}", f"b={twin}")


def test_manifests_of_one_card_that_share_patients_are_refused(tmp_path):
    (tmp_path / "card.md").write_text(
        "---\nname: clinic\npretty_name: Clinic\nlicense: unclear\ncitation: None.\nclasses: {}\npositive_class: null\n"
        "patient_ids: 'yes'\npatient_ids_from: the table\nhost: own\nreader: table\npublic_ids: true\nlayout: x\n"
        "how_to_get: x\n---\n# Clinic\n"
    )
    for name, seed in (("one", 3), ("two", 4)):
        root = folder_of(tmp_path / name, ("benign", "malignant"), 12, seed)
        rows = [
            {
                "path": f"{label}/{k}.png",
                "label": label,
                "patient_id": f"{label}{k + (20 if name == 'two' else 0) * (k < 11)}",
            }
            for label in ("benign", "malignant")
            for k in range(12)
        ]
        pd.DataFrame(rows).to_csv(root / "table.csv", index=False)
        prepare(str(tmp_path / "card.md"), roots={"": root}, out=tmp_path / f"{name}.parquet")
    with pytest.raises(LeakageError, match="share 2 patients of clinic"):
        opened(str(tmp_path / "one.parquet"), str(tmp_path / "two.parquet"))
