"""Functional groups of enhanced multi-frame ultrasound: for all frames, for each frame, or for some frames only."""

import numpy as np
import pydicom
import pytest

from tests.data.dicom_files import Kind, native, stored_values
from usvit.data.io.bad_image import BadImage
from usvit.data.io.dicom import DicomFile, read_facts

FRAMES = 3
TWELVE = stored_values(Kind("MONOCHROME2", 16, 12), FRAMES)
SHARED, PER_FRAME = "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"


def item(**elements: object) -> pydicom.Dataset:
    data = pydicom.Dataset()
    for keyword, value in elements.items():
        setattr(data, keyword, value)
    return data


def window(center: float | str, width: float | str) -> pydicom.Dataset:
    return item(FrameVOILUTSequence=[item(WindowCenter=center, WindowWidth=width)])


def rescale(slope: float, intercept: float) -> pydicom.Dataset:
    return item(PixelValueTransformationSequence=[item(RescaleSlope=slope, RescaleIntercept=intercept)])


def measures(spacing: float) -> pydicom.Dataset:
    return item(PixelMeasuresSequence=[item(PixelSpacing=[spacing, spacing])])


def merged(*groups: pydicom.Dataset) -> pydicom.Dataset:
    whole = pydicom.Dataset()
    for group in groups:
        whole.update(group)
    return whole


def lut(entries: np.ndarray) -> pydicom.Dataset:
    table = item(LUTDescriptor=[len(entries), 0, 16])
    table.add_new("LUTData", "OW", entries.astype("<u2").tobytes())
    return table


def linear(center: float, width: float, values: np.ndarray) -> np.ndarray:
    """The window of PS3.3 C.11.2.1.2.1, from 0 to 255."""
    return ((values - (center - 0.5)) / (width - 1) + 0.5).clip(0, 1) * 255


def whole(values: np.ndarray) -> np.ndarray:
    """The picture without a window."""
    return values / 4095 * 255


def file(colours: str = "MONOCHROME2", **tags: object) -> bytes:
    return native(Kind(colours, 16, 12, tags=tags), TWELVE)


EMPTY = pydicom.Dataset()
NARROW, WIDE = window(700, 400), window(2000, 3000)
DISPLAYED = {
    "shared": ({SHARED: [NARROW]}, [(700, 400)] * 3),
    "shared, and empty for each frame": ({SHARED: [NARROW], PER_FRAME: [EMPTY] * 3}, [(700, 400)] * 3),
    "per frame": ({PER_FRAME: [NARROW, WIDE, NARROW]}, [(700, 400), (2000, 3000), (700, 400)]),
    "not in the first frame": ({PER_FRAME: [EMPTY, WIDE, NARROW]}, [None, (2000, 3000), (700, 400)]),
    "empty in the first frame": (
        {PER_FRAME: [item(FrameVOILUTSequence=[EMPTY]), WIDE, window("", "")]},
        [None, (2000, 3000), None],
    ),
    "in the first frame only": ({PER_FRAME: [NARROW]}, [(700, 400), None, None]),
    "shared, but one frame has its own": (
        {SHARED: [NARROW], PER_FRAME: [EMPTY, WIDE]},
        [(700, 400), (2000, 3000), (700, 400)],
    ),
    "of the data set": ({"WindowCenter": 700, "WindowWidth": 400}, [(700, 400)] * 3),
    "of the data set, but one frame has its own": (
        {"WindowCenter": 700, "WindowWidth": 400, PER_FRAME: [EMPTY, WIDE, EMPTY]},
        [(700, 400), (2000, 3000), (700, 400)],
    ),
    "of the data set, and an empty shared one": (
        {"WindowCenter": 700, "WindowWidth": 400, SHARED: [item(FrameVOILUTSequence=[EMPTY])]},
        [(700, 400)] * 3,
    ),
}


@pytest.mark.parametrize("colours", ["MONOCHROME2", "MONOCHROME1"])
@pytest.mark.parametrize("case", DISPLAYED)
def test_each_frame_is_shown_through_its_own_window(case, colours):
    tags, windows = DISPLAYED[case]
    with DicomFile(file(colours, **tags)) as opened:
        for number in (2, 0, 1, 0):
            wanted = whole(TWELVE[number]) if windows[number] is None else linear(*windows[number], TWELVE[number])
            wanted = 255 - wanted if colours == "MONOCHROME1" else wanted
            assert np.abs(opened.frame(number)[..., 1] - wanted).max() <= 1, number


RESCALED = {
    "shared": ({SHARED: [merged(rescale(2, -100), window(1000, 500))]}, [(2, -100)] * 3),
    "per frame": (
        {SHARED: [window(1000, 500)], PER_FRAME: [rescale(2, -100), rescale(0.5, 40), rescale(1, 0)]},
        [(2, -100), (0.5, 40), (1, 0)],
    ),
    "not in the first frame": (
        {SHARED: [window(1000, 500)], PER_FRAME: [EMPTY, rescale(2, -100), EMPTY]},
        [(1, 0), (2, -100), (1, 0)],
    ),
    "of the data set": (
        {"RescaleSlope": 2, "RescaleIntercept": -100, PER_FRAME: [window(1000, 500)] * 3},
        [(2, -100)] * 3,
    ),
}


@pytest.mark.parametrize("case", RESCALED)
def test_each_frame_is_rescaled_by_its_own_numbers(case):
    tags, numbers = RESCALED[case]
    with DicomFile(file(**tags)) as opened:
        for number, (slope, intercept) in enumerate(numbers):
            wanted = linear(1000, 500, TWELVE[number].astype(float) * slope + intercept)
            assert np.abs(opened.frame(number)[..., 0] - wanted).max() <= 1, number


@pytest.mark.parametrize("place", ["of the data set", "shared", "per frame"])
def test_lookup_tables_are_applied_wherever_they_stand(place):
    inverse = item(VOILUTSequence=[lut(65535 - np.arange(4096) * 16)])
    group = item(FrameVOILUTSequence=[inverse])
    tags = {"of the data set": {"VOILUTSequence": inverse.VOILUTSequence}, "shared": {SHARED: [group]}}
    with DicomFile(file(**tags.get(place, {PER_FRAME: [group] * 3}))) as opened:
        for number in range(3):
            assert np.abs(opened.frame(number)[..., 0] - (255 - TWELVE[number] * 16 / 65535 * 255)).max() <= 1


def test_a_bad_window_of_one_frame_fails_that_frame_alone():
    with DicomFile(file(**{PER_FRAME: [window(700, -1), NARROW, window(1, 0)]})) as opened:
        assert np.abs(opened.frame(1)[..., 0] - linear(700, 400, TWELVE[1])).max() <= 1
        for number in (0, 2):
            with pytest.raises(BadImage) as caught:
                opened.frame(number)
            assert caught.value.code == "damaged"


@pytest.mark.parametrize(
    ("tags", "spacing"),
    [
        ({SHARED: [measures(0.2)]}, 0.2),
        ({SHARED: [measures(0.2)], PER_FRAME: [EMPTY] * 3}, 0.2),
        ({PER_FRAME: [measures(0.2)] * 3}, 0.2),
        ({PER_FRAME: [measures(0.2), measures(0.2), measures(0.3)]}, None),
        ({PER_FRAME: [EMPTY, measures(0.2), measures(0.2)]}, None),
        ({PER_FRAME: [measures(0.2)]}, None),
        ({SHARED: [measures(0.2)], PER_FRAME: [EMPTY, measures(0.3), EMPTY]}, None),
        ({"PixelSpacing": [0.1, 0.1], PER_FRAME: [EMPTY] * 3}, 0.1),
    ],
    ids=["shared", "shared and empty", "per frame", "different", "not in the first", "in the first", "both", "plain"],
)
def test_the_pixel_spacing_is_that_of_all_frames_or_unknown(tags, spacing):
    assert read_facts(file(**tags)).pixel_spacing_mm == spacing


@pytest.mark.parametrize("flow", [0, 2, None])
def test_flow_in_any_frame_is_a_flag_of_the_file(flow):
    kinds = [item(ImageDataTypeSequence=[item(DataType="TISSUE_INTENSITY")]) for _ in range(3)]
    if flow is not None:
        kinds[flow].ImageDataTypeSequence[0].DataType = "FLOW_VELOCITY"
    assert read_facts(file(**{PER_FRAME: kinds})).regions.flags == (("doppler",) if flow is not None else ())


def test_the_regions_of_the_data_set_hold_for_all_frames():
    region = item(
        RegionSpatialFormat=1, RegionDataType=1, RegionFlags=0, RegionLocationMinX0=2, RegionLocationMinY0=1,
        RegionLocationMaxX1=39, RegionLocationMaxY1=33,
    )  # fmt: skip
    content = file(SequenceOfUltrasoundRegions=[region], **{PER_FRAME: [NARROW, WIDE, NARROW]})
    assert read_facts(content).regions.tissue == (2, 1, 40, 34)


def test_a_number_of_frames_that_is_claimed_takes_no_time():
    content = file(**{PER_FRAME: [measures(0.2)] * 3, "NumberOfFrames": 2**31 - 1})
    assert read_facts(content).pixel_spacing_mm is None


DEEP = stored_values(Kind("MONOCHROME2", 16, 12), FRAMES)


@pytest.mark.parametrize("colours", ["MONOCHROME2", "MONOCHROME1"])
@pytest.mark.parametrize(
    ("tags", "used", "flags"),
    [
        ({}, 12, ("assumed_range",)),
        ({}, 16, ()),
        ({"WindowCenter": 2048, "WindowWidth": 4096}, 12, ()),
        ({SHARED: [window(2048, 4096)]}, 12, ()),
        ({PER_FRAME: [EMPTY, window(2048, 4096), EMPTY]}, 12, ("assumed_range",)),
    ],
    ids=["12 of 16", "16 of 16", "window", "shared window", "a window of one frame"],
)
def test_twelve_bits_in_sixteen_are_not_black_and_flagged_unless_the_header_states_a_window(colours, tags, used, flags):
    values = (DEEP.astype(np.int64) * (2**used - 1) // 4095).astype(np.uint16)
    with DicomFile(native(Kind(colours, 16, tags=dict(tags)), values)) as opened:
        assert opened.flags == flags
        for number in range(FRAMES):
            wanted = whole(DEEP[number])
            wanted = 255 - wanted if colours == "MONOCHROME1" else wanted
            assert np.abs(opened.frame(number)[..., 2] - wanted).max() <= 1


@pytest.mark.parametrize(("used", "flags"), [(12, ("assumed_range",)), (16, ())])
def test_colours_of_sixteen_bits_are_not_black_either(used, flags):
    kind = Kind("RGB", 16)
    values = stored_values(kind, 2) >> (16 - used)
    with DicomFile(native(kind, values)) as opened:
        assert opened.flags == flags
        for number in range(2):
            wanted = values[number] / (2**used - 1) * 255
            assert np.abs(opened.frame(number) - wanted).max() <= 1


def laterality(value):
    return item(FrameAnatomySequence=[item(FrameLaterality=value)])


@pytest.mark.parametrize(
    ("tags", "sides"),
    [
        ({}, [None] * 3),
        ({"ImageLaterality": "L"}, ["left"] * 3),
        ({"Laterality": "R"}, ["right"] * 3),
        ({"ImageLaterality": "B", "Laterality": "R"}, [None] * 3),
        ({"ImageLaterality": "LEFT"}, [None] * 3),
        ({SHARED: [laterality("R")], "ImageLaterality": "L"}, ["right"] * 3),
        ({PER_FRAME: [laterality("L"), laterality("R"), laterality("U")]}, ["left", "right", None]),
        ({PER_FRAME: [laterality("L")], "ImageLaterality": "R"}, ["left", "right", "right"]),
        ({SHARED: [laterality("R")], PER_FRAME: [EMPTY, laterality("L"), EMPTY]}, ["right", "left", "right"]),
    ],
)
def test_the_side_of_each_frame_is_its_own_or_that_of_the_image(tags, sides):
    facts = read_facts(file(**tags))
    assert [facts.side(number) for number in range(3)] == sides


def test_a_number_of_frames_that_is_claimed_makes_no_sides():
    content = file(**{PER_FRAME: [laterality("L")] * 3, "NumberOfFrames": 2**31 - 1})
    assert len(read_facts(content).sides) == 4
