"""What of a frame the network sees."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.data.conftest import blob, save, speckle, tissue_region, write_dicom
from usvit.data.datasets.manifest import build_manifest
from usvit.data.io.decoding import decode, read_image
from usvit.data.io.image_hashes import pixel_sha256
from usvit.data.loading.pixel_store import PixelStore
from usvit.data.transforms.geometry import lesion_cells
from usvit.data.transforms.preprocessing import CentreSquare, Preprocessing, cropped
from usvit.data.transforms.views import test_view
from usvit.progress import NoProgress

NOTHING, ONE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)


def banner(seed: int = 1) -> np.ndarray:
    """(120, 160) speckle in [40:120, 20:150], a white banner above it."""
    frame = np.zeros((120, 160), np.uint8)
    frame[:30] = 255
    frame[40:120, 20:150] = speckle(seed, 80, 130)
    return frame


def test_tissue_is_cut_out_and_whole_is_not():
    frame = np.stack([banner()] * 3, axis=2)
    assert (cropped(frame, (20, 40, 150, 120), "tissue") == frame[40:120, 20:150]).all()
    for tissue, crop in [(None, "tissue"), ((20, 40, 150, 120), "whole")]:
        assert cropped(frame, tissue, crop) is frame
    part = Preprocessing(32, "squash", NOTHING, ONE).resized(frame, (20, 40, 150, 120))
    assert (part == Preprocessing(32, "squash", NOTHING, ONE).resized(frame[40:120, 20:150].copy())).all()
    assert (Preprocessing(32, "pad", NOTHING, ONE, "whole").resized(frame)[0] == 0).all()  # the bar of padding


@pytest.mark.parametrize("tissue", [(20, 40, 51, 120), (20, 40, 150, 71), (150, 40, 20, 120), (-50, 0, 10, 120)])
def test_a_crop_that_leaves_next_to_nothing_is_not_made(tissue):
    frame = np.stack([banner()] * 3, axis=2)
    assert cropped(frame, tissue, "tissue") is frame


@pytest.mark.slow
def test_training_cuts_images_and_masks_to_the_tissue_and_keeps_the_whole_frame_s_hash(tmp_path):
    lesion = np.zeros((120, 160), np.uint8)
    lesion[60:80, 100:130] = 255
    rows = []
    for number in range(4):
        regions = {"SequenceOfUltrasoundRegions": [tissue_region(20, 40, 150, 120)]} if number % 2 else {}
        write_dicom(tmp_path / "data" / f"{number}.dcm", banner(number), **regions)
        save(lesion, tmp_path / "data" / f"{number}_mask.png")
        rows.append((f"{number}.dcm", ("benign", "malignant")[number // 2], f"{number}_mask.png"))
    pd.DataFrame(rows, columns=["path", "label", "mask_path"]).to_csv(tmp_path / "data" / "labels.csv", index=False)
    manifest = build_manifest("table", {"": tmp_path / "data"}, NoProgress())
    stores = {}
    for crop in ("tissue", "whole"):
        preprocessing = Preprocessing(64, "pad", NOTHING, ONE, crop)
        stores[crop] = PixelStore.build(
            manifest, preprocessing, memory_gb=1, folder=tmp_path, progress=NoProgress(), with_lesions=True
        )
    for at, row in enumerate(manifest.usable.itertuples()):
        frame = read_image(tmp_path / "data" / row.path)
        assert row.sha256 == pixel_sha256(frame)
        described = int(row.path[0]) % 2
        assert ((stores["tissue"].pixels[at] == stores["whole"].pixels[at]).all()) == (not described)
        part = np.s_[40:120, 20:150] if described else np.s_[:]
        whole = Preprocessing(64, "pad", NOTHING, ONE, "whole")
        assert (stores["tissue"].pixels[at] == whole.resized(frame[part].copy())).all()
        assert (stores["tissue"].lesions[at] == lesion_cells(whole.resized_mask(lesion[part] > 0))).all()


def test_a_picture_has_no_tissue_region_and_is_taken_whole(tmp_path):
    decoded = decode(save(blob(80, 90), tmp_path / "a.png"))
    assert decoded.tissue is None
    both = [Preprocessing(32, "pad", NOTHING, ONE, crop).resized(*decoded[:2]) for crop in ("tissue", "whole")]
    assert (both[0] == both[1]).all()


@pytest.mark.slow
def test_processes_that_only_read_images_need_no_torch():
    code = "import sys, usvit.scoring.reading.item_reader; sys.exit('torch' in sys.modules or 'timm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("resize", ["pad", "squash"])
@pytest.mark.parametrize("tissue", [None, (30, 20, 190, 120)])
def test_a_mask_is_found_again_where_it_was_in_the_frame(resize, tissue):
    mask = np.zeros((150, 220), dtype=bool)
    mask[50:90, 60:130] = True
    preprocessing = Preprocessing(96, resize, (0.5,) * 3, (0.5,) * 3)
    restored = preprocessing.restored(preprocessing.resized_mask(mask, tissue).astype(np.float32), mask.shape, tissue)
    rows, columns = np.nonzero(restored > 0.5)
    found = (rows.min(), rows.max() + 1, columns.min(), columns.max() + 1)
    assert np.abs(np.subtract(found, (50, 90, 60, 130))).max() <= 2


@pytest.mark.parametrize("shape", [(57, 91), (91, 57), (64, 64), (33, 200)])
@pytest.mark.parametrize("test_crop", [1.0, 0.875])
def test_the_central_square_is_the_view_that_a_transfer_tests(shape, test_crop):
    image = np.stack([speckle(1, *shape)] * 3, axis=2)
    expected = test_view(Image.fromarray(image), 32, test_crop)
    found = CentreSquare(32, "squash", NOTHING, ONE, test_crop=test_crop).resized(image)
    np.testing.assert_array_equal(found, expected)
