"""``usvit transfer --how segment`` on pictures with masks: figures, resumption, class numbers, and what it refuses."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy.ndimage import label

import usvit
from tests.messages import record_messages
from tests.upstream.segmentation.disc_cases import SETTINGS, SHAPE, N, as_coco, run, scene, write
from usvit.config import build
from usvit.errors import LeakageError, UsvitError
from usvit.files import read_csv
from usvit.metrics.clustered_mean import clustered_mean
from usvit.metrics.overlap import mask_agreement
from usvit.training import Stopped
from usvit.upstream.config.transfer import TransferConfig


def test_every_image_is_predicted_once_by_the_fold_that_tests_it(finished, discs):
    masks = read_csv(finished.path / "masks.csv", text=("image_id", "file"))
    assert sorted(masks.image_id) == sorted(map(str, range(1, N + 1)))
    folds = read_csv(finished.path / "folds.csv", text=("image_id",))
    tested = folds[folds.part == "test"].set_index("image_id").fold
    for row in masks.itertuples():
        assert row.file.startswith(f"fold-{tested[row.image_id]}/masks/")
        predicted = np.asarray(Image.open(finished.path / row.file))
        true = scene(int(row.image_id))[1] > 0
        assert set(np.unique(predicted)) <= {0, 255} and predicted.shape == SHAPE
        expected = mask_agreement(predicted > 0, true)
        assert row.pixel_accuracy == pytest.approx(expected.pixel_accuracy)
        assert row.dice == "" if expected.dice is None else float(row.dice) == pytest.approx(expected.dice)


def test_the_figures_are_those_of_the_written_masks(finished):
    found = finished.result.segment
    (mine, peer), masks = found.heads, pd.read_csv(finished.path / "masks.csv")
    assert (mine.head, peer.head, found.n_folds, found.n_images) == ("linear", "unet", 3, N)
    assert mine.dice.value > 0.5  # bright discs on dark ground
    known = masks[masks.dice.notna()]
    assert mine.dice == mine.dice.model_validate(clustered_mean(known.dice, known.group_id).model_dump())
    assert mine.hd95_mm is None and mine.false_alarm.n_groups == 3
    pairs = [
        (scene(int(row.image_id))[1] > 0, np.asarray(Image.open(finished.path / row.file)) > 0)
        for row in masks.itertuples()
    ]
    true, predicted = (np.stack(one) for one in zip(*pairs, strict=True))
    ious = [(t & p).sum() / (t | p).sum() for t, p in ((true, predicted), (~true, ~predicted))]
    assert mine.miou.value == pytest.approx(np.mean(ious))
    assert mine.miou.ci95[0] < mine.miou.value < mine.miou.ci95[1]
    assert finished.result.summary[0].accuracy.value == pytest.approx((true == predicted).mean())
    lesions = sum(label(one, np.ones((3, 3)))[1] for one in true)
    assert found.n_lesions == lesions > (true.any(axis=(1, 2))).sum()  # some images have two
    other = pd.read_csv(finished.path / "peer" / "masks.csv").set_index("image_id").dice
    difference = next(one.difference for one in found.differences if one.figure == "dice")
    assert difference.value == pytest.approx((masks.set_index("image_id").dice - other).mean())
    boxes = pd.read_csv(finished.path / "boxes.csv")
    assert boxes.is_lesion.sum() == lesions and boxes.confidence[boxes.is_lesion == 1].isna().all()
    first = next(row for row in boxes[boxes.is_lesion == 1].itertuples())
    assert scene(int(first.image_id))[1][first.y0 : first.y1, first.x0 : first.x1].any()
    assert mine.ap.value <= mine.ap50.value and mine.ap50.value > 0.3
    rates = [one.sensitivity.value for one in mine.froc]
    assert rates == sorted(rates)


def test_the_page_shows_figures_curve_and_outlines_without_images_of_unclear_licence(finished):
    page = (finished.path / "report.html").read_text()
    for said in (
        "Dice coefficient",
        "Free-response curve",
        "Hausdorff",
        "true outline cyan",
        "does not allow the images",
    ):
        assert said in page
    one = finished.result.segment.overlays[0]
    picture = np.asarray(Image.open(finished.path / one.file))
    assert not one.has_image and set(map(tuple, picture.reshape(-1, 3).tolist())) <= {
        (0, 0, 0), (0, 255, 255), (255, 140, 0)
    }  # fmt: skip


def test_the_network_knows_what_it_has_seen_and_cannot_be_tested_on_it(finished, discs, tmp_path):
    weights = {"name": "timm:test_resnet", "weights": str(finished.path / "fold-0")}
    with pytest.raises(LeakageError, match="has seen images"):
        run(discs, tmp_path / "run", model=weights)
    assert not (tmp_path / "run").exists()
    other = write(tmp_path / "others", "", range(100, 118))
    assert run(other, tmp_path / "run", model=weights).result.weights.lineage


def test_a_killed_run_resumes_to_the_same_tables(discs, tmp_path, monkeypatch):
    heads = {"head": "mask_rcnn", "peer": "linear"}
    whole = run(discs, tmp_path / "whole", segment=heads)
    from usvit.upstream.segmentation.training import SegmentationTask

    steps, loss = [], SegmentationTask.loss

    def dying(self, module, portion, step):
        steps.append(step)
        if len(steps) == 7:  # in the second fold
            raise Stopped("SIGTERM")
        return loss(self, module, portion, step)

    monkeypatch.setattr(SegmentationTask, "loss", dying)
    with pytest.raises(Stopped):
        run(discs, tmp_path / "killed", segment=heads)
    resumed = run(discs, tmp_path / "killed", segment=heads)
    assert len(steps) < 7 + 6 * 4  # the first fold was not trained again
    for name in ("masks.csv", "pixels.csv", "lesions.csv", "boxes.csv", "froc.csv", "peer/masks.csv"):
        assert (resumed.path / name).read_bytes() == (whole.path / name).read_bytes(), name


def test_class_numbers_have_a_table_and_folders_are_a_split(tmp_path):
    root = write(tmp_path / "ade", "training", range(1, 22), indices=True)
    write(root, "validation", range(21, 31), indices=True)
    (tmp_path / "classes.csv").write_text("value,name\n0,ground\n1,disc\n2,other disc\n")
    segment = {"head": "segmenter", "table": str(tmp_path / "classes.csv"), "test": "validation", "loss": "ce"}
    with pytest.raises(LeakageError, match="leak"):  # image 21 is in both
        run(root, tmp_path / "run", segment=segment)
    for kind in ("images", "annotations"):
        (root / kind / "training" / "21.png").unlink()
    found = run(root, tmp_path / "run", segment=segment)
    record = found.result.segment
    assert [one.name for one in record.heads[0].classes] == ["ground", "disc", "other disc"]
    assert (record.n_folds, record.n_images, record.n_lesions, record.heads[0].dice) == (1, 10, None, None)
    masks = read_csv(found.path / "masks.csv", text=("image_id", "file"))
    assert all(name.startswith("validation/") for name in masks.image_id)
    assert set(np.unique(np.asarray(Image.open(found.path / masks.file[0])))) <= {0, 1, 2}


def test_annotations_of_coco_are_the_same_run_as_mask_files(tmp_path):
    numbers = [one for one in range(1, 13) if one != 10]
    pairs, coco = write(tmp_path / "pairs", "", numbers, indices=True), as_coco(tmp_path / "coco", numbers)
    (tmp_path / "classes.csv").write_text("value,name\n0,background\n1,disc\n2,other disc\n")
    of_coco = {"dataset": "coco", "positive": "disc"}
    for number, table in enumerate(
        ((None, None), (tmp_path / "classes.csv", coco / "annotations" / "instances_test.json"))
    ):
        shared = {"head": "linear", "loss": "ce"}
        mine, other = (
            run(root, tmp_path / f"{number}-{root.name}", segment=shared | {"table": one and str(one)}, **changes)
            for root, one, changes in ((pairs, table[0], {}), (coco, table[1], {"data": of_coco}))
        )
        assert other.result.segment.n_images == len(numbers)
        pixels = [read_csv(one.path / "pixels.csv", text=("image_id",)) for one in (mine, other)]
        true, same = (
            {(one.image_id.removeprefix("test/"), one._6): one.true for one in table.itertuples() if one.true}
            for table in pixels
        )
        assert true == same and len({name for _, name in true}) == (3 if number else 2)


def refused(root, tmp_path, match, error=UsvitError, **changes):
    with pytest.raises(error, match=match) as found:
        run(root, tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists() and "\n\n" not in str(found.value)


def test_bad_masks_are_refused_before_anything_is_written(discs, tmp_path):
    def changed(name, change):
        root = write(tmp_path / name, "", range(1, 13))
        change(root / "annotations")
        return root

    def save(folder, number, pixels):
        Image.fromarray(pixels).save(folder / f"{number}.png")

    other_size = changed("size", lambda at: save(at, 3, np.zeros((20, 20), np.uint8)))
    refused(other_size, tmp_path, r"the mask is 20 x 20 pixels but its image is 64 x 48|20 x 20")
    inverted = changed("inverted", lambda at: save(at, 3, 255 - 255 * (scene(3)[1] > 0).astype("u1")))
    refused(inverted, tmp_path, r"3.png.*the mask is inverted: write lesions in white on black")
    empty = changed("empty", lambda at: [save(at, number, np.zeros(SHAPE, np.uint8)) for number in range(1, 13)])
    refused(empty, tmp_path, "All masks of masks are empty")
    lost = changed("lost", lambda at: (at / "5.png").unlink())
    refused(lost, tmp_path, r"images/5.png' has no mask of the same name")
    alone = changed("alone", lambda at: save(at, 99, np.zeros(SHAPE, np.uint8)))
    refused(alone, tmp_path, r"annotations/99.png' has no image of the same name")
    table = tmp_path / "table.csv"
    table.write_text("value,name\n7,a\n8,b\n")
    refused(discs, tmp_path, "none of its grey values is in segment.table", segment={"table": str(table)})
    table.write_text("value,name\n7,a\n7,b\n")
    refused(discs, tmp_path, "needs 2 to 255 rows", segment={"table": str(table)})
    refused(discs, tmp_path, "segment.test=validation names a folder", segment={"test": "validation"})


def test_settings_that_do_not_fit_are_refused():
    for changes, said in (
        ({"source": {"name": "folder"}}, "set source.name to data"),
        ({"model": {"tune": "norm"}}, "set model.tune to full or head"),
        ({"segment": {"peer": "upernet"}}, "another head than segment.head"),
        ({"segment": {"head": "mask_rcnn", "table": "t.csv"}}, "mask_rcnn outlines lesions alone"),
        ({"train": {"batch_size": 1}}, "set train.batch_size to 2 or more"),
        ({"leaks": "drop"}, "set leaks to refuse"),
    ):
        with pytest.raises(UsvitError, match=said):
            build(TransferConfig, SETTINGS, changes)


def test_images_without_a_mask_file_are_left_out_and_counted(tmp_path):
    for number in range(1, 22):
        pixels, labels = scene(number)
        folder = tmp_path / "own" / ("benign" if number % 2 else "malignant")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        if number > 2:
            Image.fromarray(255 * (labels > 0).astype(np.uint8)).save(folder / f"{number}_mask.png")
    said = record_messages()
    found = usvit.transfer(
        "segment", "scratch", dataset="folder", data_root=tmp_path / "own", out=tmp_path / "run",
        model="timm:test_resnet",
        segment__head="linear", split__folds=3, train__steps=2, train__batch_size=4, model__image_size=64, device="cpu",
        model__tune="head",
    ).result  # fmt: skip
    assert (found.segment.n_without_mask, found.segment.n_images, found.tune) == (2, 19, "head")
    assert any("2 of 21 images have no mask file" in line for line in said)
