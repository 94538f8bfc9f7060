"""The audit as a whole, on small data sets with faults that were put in."""

import json

import jsonschema
import numpy as np
import pytest
from PIL import Image

from tests.conftest import REPOSITORY
from tests.data.audit.conftest import cross, tissue, write
from tests.data.conftest import b_image, save, write_b, write_busi, write_csv
from usvit.data.audit.audit_dataset import find_faults
from usvit.data.datasets.cards import load_cards
from usvit.data.datasets.manifest import build_manifest
from usvit.progress import NoProgress

pytestmark = pytest.mark.slow

SCHEMA = json.loads((REPOSITORY / "docs" / "reference" / "audit.schema.json").read_text())


def audited(datasets, roots):
    result = find_faults(build_manifest(datasets, roots, NoProgress()), load_cards(datasets), NoProgress())
    jsonschema.Draft202012Validator(SCHEMA).validate(result.record.content())
    return result


def replace(root, image_id, pixels):
    """Put another picture, with a mask of its size, in the place of one of ``write_busi``'s."""
    label = image_id.split()[0]
    save(pixels, root / label / f"{image_id}.png")
    mask = np.zeros(pixels.shape[:2], np.uint8)
    mask[10:20, 10:20] = 255 * (label != "normal")
    save(mask, root / label / f"{image_id}_mask.png")


@pytest.fixture
def faulty(busi):
    scan = tissue(40)
    replace(busi, "benign (1)", cross(cross(scan, 120, 90), 260, 170))  # the same frame, annotated
    replace(busi, "benign (2)", scan)
    replace(busi, "benign (3)", write(scan[:280, :390], "LEFT", (40, 220)))  # and cropped
    twice = tissue(41)
    replace(busi, "benign (4)", twice)
    replace(busi, "malignant (1)", twice)
    replace(busi, "normal (1)", np.asarray(Image.fromarray(tissue(42)).resize((1600, 500))))
    return busi


def test_planted_faults_are_all_reported(faulty):
    record = audited("busi", {"": faulty}).record.content()
    assert record["exact_duplicates"] == [["benign (4)", "malignant (1)"]]
    assert record["duplicate_groups"] == [["benign (1)", "benign (2)", "benign (3)"], ["benign (4)", "malignant (1)"]]
    assert record["label_conflicts"] == [["benign (4)", "malignant (1)"]]
    assert record["contamination"] == []
    assert record["card_mismatch"][0] == "busi: benign: card 437, found 12"
    assert record["class_counts"] == {"benign": 12, "malignant": 8, "normal": 6}
    flags = record["flags"]
    # The other images are 40 x 56.
    assert flags["benign (1)"] == ["calipers", "odd_size"]
    assert flags["benign (2)"] == ["odd_size"]
    assert flags["benign (3)"] == ["text", "odd_size"]
    assert "colour" in flags["benign (5)"]
    assert "several_masks" in flags["benign (10)"]
    assert {"odd_size", "odd_aspect", "empty_mask"} <= set(flags["normal (1)"])
    assert record["flag_counts"]["empty_mask"] == {"benign": 0, "malignant": 0, "normal": 6}
    assert record["parameters"]["min_crosses"] == 2


def test_the_keep_list_keeps_the_clean_copy_and_agrees_with_the_record(faulty):
    result = audited("busi", {"": faulty})
    keep = result.keep.set_index("image_id").keep
    assert keep[["benign (1)", "benign (2)", "benign (3)"]].tolist() == ["false", "true", "false"]
    assert keep[["benign (4)", "malignant (1)"]].tolist() == ["false", "false"]
    assert result.record.keep.content() == {"kept": 22, "dropped": 4}


def test_in_a_union_ids_carry_their_data_set_and_shared_images_are_named(tmp_path):
    roots = {"busi": write_busi(tmp_path / "busi"), "b": write_b(tmp_path / "b")}
    save(b_image(1), roots["busi"] / "benign" / "benign (2).png", "RGB")
    save(b_image(3), roots["busi"] / "malignant" / "malignant (2).png", "RGB")  # benign in b
    record = audited("busi+b", roots).record.content()
    shared = [["busi/benign (2)", "b/000001"], ["busi/malignant (2)", "b/000003"]]
    assert record["contamination"] == record["duplicate_groups"] == shared
    assert record["label_conflicts"] == shared[1:]
    assert all("/" in image_id for image_id in record["flags"])


def test_the_same_files_give_the_same_record(faulty):
    assert audited("busi", {"": faulty}).record == audited("busi", {"": faulty}).record


@pytest.mark.slow
def test_real_busi_has_the_published_conflict_and_its_known_oddities(real_data):
    record = audited("busi", {"": real_data}).record.content()
    assert record["exact_duplicates"] == [["benign (433)", "malignant (145)"]]
    assert ["benign (433)", "malignant (145)"] in record["label_conflicts"]
    assert record["card_mismatch"] == []
    counts = {name: sum(by_class.values()) for name, by_class in record["flag_counts"].items()}
    assert counts["empty_mask"] == record["flag_counts"]["empty_mask"]["normal"] == 133
    assert (counts["several_masks"], counts["colour"], counts["doppler"], counts["dual_view"]) == (17, 15, 11, 0)
    assert 110 <= counts["calipers"] <= 140  # 123 of the 125 found are right
    assert 260 <= counts["text"] <= 310


def test_lesions_with_several_labels_are_a_finding_and_units_are_counted(tmp_path):
    rows = [["path", "label", "patient_id", "lesion_id", "side"]]
    for number, (label, patient, lesion) in enumerate(
        [
            ("benign", "P", "1"),
            ("malignant", "P", "1"),
            ("benign", "P", "2"),
            ("benign", "Q", "3"),
            ("malignant", "", ""),
        ]
    ):
        save(tissue(60 + number), tmp_path / f"{number}.png")
        rows.append([f"{number}.png", label, patient, lesion, "L" if patient else ""])
    write_csv(tmp_path / "list.csv", rows)
    result = audited("table", {"": tmp_path})
    ids = result.manifest.table.image_id
    assert result.record.lesion_label_conflicts == [[ids[0], ids[1]]]
    units = {name: one.content() for name, one in result.record.units.items()}
    assert units["lesion"] == {
        "n": 3, "classes": {"benign": 2, "malignant": 1}, "several_labels": 1, "images_without": 1
    }  # fmt: skip
    assert units["breast"]["n"] == units["patient"]["n"] == 2 and "exam" not in units


def test_a_data_set_without_ids_has_no_counts_of_units(busi):
    record = audited("busi", {"": busi}).record.content()
    assert "units" not in record and "lesion_label_conflicts" not in record
