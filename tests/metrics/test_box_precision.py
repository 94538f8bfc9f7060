"""Average precision of boxes against pycocotools."""

import contextlib
import io

import numpy as np
import pandas as pd
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from usvit.metrics.box_precision import EDGES, average_precisions


def table_of(n_images, seed):
    """Lesions in most images, candidates near them and elsewhere, several of them with equal confidence."""
    rng, rows = np.random.default_rng(seed), []
    for image in range(n_images):
        key = {"dataset": "d", "image_id": f"{image:03}", "group_id": f"g{image // 3}"}
        for _ in range(int(rng.choice(3, p=[0.25, 0.5, 0.25]))):
            corner, size = rng.integers(0, 60, 2), rng.integers(8, 40, 2)
            box = np.concatenate([corner, corner + size])
            rows.append({**key, "is_lesion": True, "confidence": np.nan, **dict(zip(EDGES, box, strict=True))})
            for _ in range(int(rng.integers(0, 3))):
                moved = box + rng.integers(-4, 5, 4)
                seen = {"is_lesion": False, "confidence": round(float(rng.random()), 1)}
                rows.append({**key, **seen, **dict(zip(EDGES, moved, strict=True))})
        if rng.random() < 0.4:
            seen = {"is_lesion": False, "confidence": round(float(rng.random()), 1)}
            rows.append({**key, **seen, **dict(zip(EDGES, (70, 70, 90, 95), strict=True))})
    return pd.DataFrame(rows)


def coco(table, n_images):
    """AP and AP50 of the reference implementation."""
    sized = table.assign(w=table.x1 - table.x0, h=table.y1 - table.y0)
    true, found = [], []
    for number, row in enumerate(sized.itertuples(), start=1):
        one = {"image_id": int(row.image_id), "category_id": 1, "bbox": [row.x0, row.y0, row.w, row.h]}
        if row.is_lesion:
            true.append(one | {"id": number, "area": row.w * row.h, "iscrowd": 0})
        else:
            found.append(one | {"score": row.confidence})
    with contextlib.redirect_stdout(io.StringIO()):
        reference = COCO()
        reference.dataset = {
            "images": [{"id": number} for number in range(n_images)], "annotations": true, "categories": [{"id": 1}]
        }  # fmt: skip
        reference.createIndex()
        measured = COCOeval(reference, reference.loadRes(found), "bbox")
        measured.evaluate()
        measured.accumulate()
        measured.summarize()
    return measured.stats[:2]


@pytest.mark.parametrize(("n_images", "seed"), [(40, 0), (7, 1), (61, 2)])
def test_it_is_that_of_coco(n_images, seed):
    table = table_of(n_images, seed)
    found = average_precisions(table, [f"g{image // 3}" for image in range(n_images)])
    assert [found["ap"].value, found["ap50"].value] == pytest.approx(list(coco(table, n_images)), abs=1e-9)
    assert found["ap50"].ci95[0] < found["ap50"].value < found["ap50"].ci95[1]


def test_more_images_of_one_group_do_not_narrow_the_interval():
    table, groups = table_of(45, 3), [f"g{image // 3}" for image in range(45)]
    copies = pd.concat([table, table.assign(image_id=table.image_id + "x")])
    once, twice = average_precisions(table, groups)["ap50"], average_precisions(copies, groups + groups)["ap50"]
    assert twice.value == pytest.approx(once.value, abs=0.02)
    assert np.ptp(twice.ci95) == pytest.approx(np.ptp(once.ci95), rel=0.1)


def test_without_lesions_or_candidates():
    table = table_of(12, 4)
    groups = [str(image // 3) for image in range(12)]
    table["group_id"] = [groups[int(image)] for image in table.image_id]
    none = average_precisions(table[~table.is_lesion], groups)["ap"]
    assert none.value is None and "no lesions" in none.reason
    assert average_precisions(table[table.is_lesion], groups)["ap"].value == 0
    assert average_precisions(table.iloc[:0].astype({"is_lesion": bool}), groups)["ap50"].value is None
