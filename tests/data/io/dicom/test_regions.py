from pathlib import Path

import numpy as np
import pydicom
import pytest

from tests.data.conftest import write_dicom
from usvit.data.io.dicom import Regions, read_facts
from usvit.data.io.dicom.regions import read_regions

FRAME = np.zeros((300, 400), np.uint8)


def region(left: int, top: int, last_x: int, last_y: int, **tags: object) -> pydicom.Dataset:
    """A B-mode area of 0.08 mm a pixel; other tags replace these."""
    item = pydicom.Dataset()
    item.RegionSpatialFormat, item.RegionDataType, item.RegionFlags = 1, 1, 0
    item.RegionLocationMinX0, item.RegionLocationMinY0 = left, top
    item.RegionLocationMaxX1, item.RegionLocationMaxY1 = last_x, last_y
    item.PhysicalUnitsXDirection = item.PhysicalUnitsYDirection = 3
    item.PhysicalDeltaX = item.PhysicalDeltaY = 0.008
    for name, value in tags.items():
        setattr(item, name, value)
    return item


def regions(*items: pydicom.Dataset) -> Regions:
    data = pydicom.Dataset()
    data.SequenceOfUltrasoundRegions = list(items)
    return read_regions(data, 300, 400)


WHOLE = region(40, 20, 359, 279)


def test_the_tissue_is_cut_out_by_its_box_whose_last_pixel_belongs_to_it():
    found = regions(WHOLE)
    assert found == Regions((40, 20, 360, 280), (0.08, 0.08), ())
    picture = np.zeros((300, 400), np.uint8)
    picture[20:280, 40:360] = 1
    left, top, right, bottom = found.tissue
    assert picture[top:bottom, left:right].all()
    assert picture[top:bottom, left:right].sum() == picture.sum()


def test_of_several_areas_the_largest_is_the_tissue_and_gives_the_spacing():
    small = region(0, 0, 99, 99, PhysicalDeltaX=0.02, PhysicalDeltaY=0.02)
    assert regions(small, region(100, 0, 399, 299)).tissue == (100, 0, 400, 300)
    assert regions(small, region(100, 0, 399, 299)).spacing_mm == (0.08, 0.08)


def test_a_colour_box_in_the_tissue_is_doppler_and_no_second_view():
    colour = region(100, 100, 250, 200, RegionDataType=2)
    assert regions(WHOLE, colour).flags == ("doppler",)
    assert regions(colour, WHOLE).tissue == (40, 20, 360, 280)
    assert regions(colour).tissue is None


@pytest.mark.parametrize("kind", [3, 4, 5, 6, 7])
def test_a_spectrum_is_doppler_and_spectral(kind):
    spectrum = region(0, 200, 399, 299, RegionSpatialFormat=3, RegionDataType=kind)
    assert regions(region(0, 0, 399, 199), spectrum).flags == ("doppler", "spectral")


def test_a_trace_of_motion_is_m_mode_and_its_area_is_no_tissue():
    trace = region(0, 100, 399, 299, RegionSpatialFormat=2)
    assert regions(region(0, 0, 399, 99), trace) == Regions((0, 0, 400, 100), (0.08, 0.08), ("m_mode",))


def test_a_heart_s_trace_or_a_grey_scale_changes_nothing():
    others = [region(0, 250, 399, 299, RegionSpatialFormat=4, RegionDataType=10)]
    others.append(region(360, 0, 399, 200, RegionSpatialFormat=0, RegionDataType=13))
    assert regions(WHOLE, *others) == regions(WHOLE)


def test_two_views_side_by_side_are_dual_and_one_within_another_or_listed_twice_is_not():
    assert regions(region(0, 0, 199, 299), region(200, 0, 399, 299)).flags == ("dual_view",)
    assert regions(region(0, 0, 205, 299), region(195, 0, 399, 299)).flags == ("dual_view",)  # a common border
    assert regions(WHOLE, region(100, 100, 200, 200)).flags == ()
    assert regions(WHOLE, WHOLE).flags == ()


@pytest.mark.parametrize(
    "odd",
    [
        region(40, 20, 700, 279),
        region(40, 20, 359, 301),
        region(359, 279, 40, 20),
        region(0, 0, 30, 299),
        region(4_000_000_000, 20, 359, 279),
        pydicom.Dataset(),
    ],
    ids=["too wide", "too high", "inverted", "tiny", "far away", "empty"],
)
def test_a_region_that_cannot_be_is_passed_over(odd):
    assert regions(odd) == Regions()
    assert regions(odd, WHOLE) == regions(WHOLE)


def test_the_width_itself_as_last_column_is_taken_for_the_last():
    assert regions(region(0, 0, 400, 300)).tissue == (0, 0, 400, 300)


@pytest.mark.parametrize(
    ("tags", "spacing"),
    [
        ({"PhysicalDeltaX": -0.008}, (0.08, 0.08)),  # a picture from right to left
        ({"PhysicalDeltaY": 0.016}, (0.08, 0.16)),
        ({"PhysicalDeltaX": 0.0}, None),
        ({"PhysicalDeltaX": float("nan")}, None),
        ({"PhysicalDeltaX": float("inf")}, None),
        ({"PhysicalDeltaX": 5000.0}, None),
        ({"PhysicalUnitsXDirection": 4}, None),  # seconds
    ],
    ids=str,
)
def test_only_a_believable_spacing_is_taken(tags, spacing):
    found = regions(region(40, 20, 359, 279, **tags))
    assert found.spacing_mm == spacing
    assert found.tissue == (40, 20, 360, 280)


def test_values_of_the_wrong_type_are_passed_over():
    item = pydicom.Dataset()
    item.update(region(40, 20, 359, 279))
    item.add_new("RegionLocationMinX0", "LO", "left")
    item.add_new("RegionDataType", "SQ", [])
    assert regions(item) == Regions()
    data = pydicom.Dataset()
    data.add_new("SequenceOfUltrasoundRegions", "LO", "none")
    assert read_regions(data, 300, 400) == Regions()


@pytest.mark.parametrize(
    ("tags", "spacing"),
    [
        ({}, None),
        ({"SequenceOfUltrasoundRegions": [WHOLE]}, 0.08),
        ({"SequenceOfUltrasoundRegions": [WHOLE], "PixelSpacing": [0.12, 0.12]}, 0.08),
        ({"SequenceOfUltrasoundRegions": [region(40, 20, 359, 279, PhysicalDeltaY=0.016)]}, None),
        ({"SequenceOfUltrasoundRegions": [region(40, 20, 900, 279)]}, None),
        ({"PixelSpacing": [0.12, 0.12]}, 0.12),
        ({"PixelSpacing": [0.12, 0.2]}, None),
        ({"PixelSpacing": [0.0, 0.0]}, None),
        ({"PixelSpacing": [19570203, 19570203]}, None),
    ],
    ids=str,
)
def test_a_file_s_spacing_is_that_of_its_tissue_else_of_the_image(tmp_path, tags, spacing):
    facts = read_facts(write_dicom(tmp_path / "a.dcm", FRAME, **tags))
    assert facts.pixel_spacing_mm == spacing


def test_enhanced_files_tell_flow_and_spacing_in_functional_groups(tmp_path):
    measures, kind, group = pydicom.Dataset(), pydicom.Dataset(), pydicom.Dataset()
    measures.PixelSpacing, kind.DataType = [0.2, 0.2], "FLOW_VELOCITY"
    group.PixelMeasuresSequence, group.ImageDataTypeSequence = [measures], [kind]
    path = write_dicom(tmp_path / "a.dcm", FRAME, SharedFunctionalGroupsSequence=[group])
    assert read_facts(path).pixel_spacing_mm == 0.2
    assert read_facts(path).regions.flags == ("doppler",)


def test_burned_in_words_are_told_where_the_header_tells_them(tmp_path):
    assert read_facts(write_dicom(tmp_path / "a.dcm", FRAME, BurnedInAnnotation="YES")).burned_in
    assert not read_facts(write_dicom(tmp_path / "b.dcm", FRAME, BurnedInAnnotation="NO")).burned_in
    assert not read_facts(write_dicom(tmp_path / "c.dcm", FRAME)).burned_in


def test_a_real_picture_of_two_views(real_data: Path):
    found = read_facts(real_data / "us_dicom" / "gdcm-US-ALOKA-16.dcm").regions
    assert found == Regions((32, 24, 336, 416), (0.382653, 0.382653), ("dual_view",))


def test_real_regions_that_lie_outside_the_frame_are_not_believed(real_data: Path):
    for name in ("examples_ybr_color", "examples_palette"):
        assert read_facts(real_data / "us_dicom" / f"{name}.dcm").regions == Regions()
