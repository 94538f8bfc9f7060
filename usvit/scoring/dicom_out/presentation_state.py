"""DICOM presentation states: tissue region, lesion, scores and decision, drawn by the viewer over the source image.

A presentation state holds no pixels. Viewers that list no structured report still offer it beside the image. Grey
images get a Grayscale Softcopy Presentation State and colour images a Color Softcopy Presentation State (PS3.3 A.33.1
and A.33.2); a viewer ignores a state of the wrong class. highdicom builds both.
"""

import datetime
import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

import cv2
import highdicom as hd
import numpy as np
from numpy.typing import NDArray
from PIL import ImageCms
from pydicom.dataset import Dataset
from pydicom.multival import MultiValue
from pydicom.valuerep import DA, TM, DSfloat

from usvit.data.io import Box
from usvit.pseudonyms import Pseudonyms
from usvit.scoring.dicom_out.deidentify import IMAGE_CLASSES, UTF8, object_uid, of_revision, stamp
from usvit.scoring.dicom_out.findings import RESEARCH_USE_ONLY, Finding, ScoringModel
from usvit.scoring.dicom_out.overlay import caption_lines
from usvit.scoring.dicom_out.retired import rename_references, supported_class, with_class

SERIES_NUMBER = 9803
SERIES_DESCRIPTION = "usvit annotations - RESEARCH USE ONLY"
LABEL = "USVIT SCORES"
LAYER = "USVIT"
_CAPTION_BOX = (0.01, 0.8, 0.99, 0.99)
"""Left, top, right and bottom of the caption, as fractions of the displayed area (DISPLAY units)."""
_MOST_PARTS = 8
"""Parts of a lesion's mask that are outlined; smaller ones are specks."""
_CYAN = (0, 255, 255)
_GREY = ("MONOCHROME1", "MONOCHROME2")
_FUNCTIONS = ("LINEAR", "LINEAR_EXACT", "SIGMOID")


def presentation_state_of(
    evidence: Dataset,
    findings: Sequence[Finding],
    scorer: ScoringModel,
    *,
    header: Dataset,
    tissue: Box | None,
    lesions: Mapping[int, NDArray[np.bool_]],
    pseudonyms: Pseudonyms,
    started: datetime.datetime,
    revision: int = 0,
) -> Dataset:
    """Build the presentation state of one source instance.

    Each finding becomes a graphic annotation of its frame: outlines of tissue region and lesion, and the caption of the
    overlays with ``RESEARCH_USE_ONLY`` as a text object. The grey values are displayed as the header of the source asks
    for (rescaling, VOI lookup table or first window, MONOCHROME1), because a presentation state replaces all of it.

    Args:
        evidence: result of ``evidence_of``, with SOP class and instance.
        findings: findings of the frames to annotate; at least one. If the SOP class does not allow references to
            frames, the one with the highest probability is shown on the whole instance.
        scorer: the networks.
        header: header of the source, from which only numbers are taken.
        tissue: the region that the networks saw, in pixels of the whole frame; None if they saw the whole frame.
        lesions: masks of whole frames, (H, W) bool, by the number of the frame; others get no outline of a lesion.
        pseudonyms: used for the UIDs of the object.
        started: time at which the job started.
        revision: number of the revision of the study's results; another revision gives another object.

    Returns:
        The data set, which is the same for the same arguments.

    Source: PS3.3 C.10.5 (graphic annotation), C.11.8 (softcopy VOI LUT), C.11.15 (ICC profile); PS3.4 N.2.
    """
    real = evidence.SOPClassUID
    image = with_class(evidence, supported_class(real))
    is_grey = str(header.get("PhotometricInterpretation") or "").strip() in _GREY
    image.SamplesPerPixel = 1 if is_grey else 3  # a palette gives colours, so its image is presented as a colour image
    image.SharedFunctionalGroupsSequence, image.PerFrameFunctionalGroupsSequence = [Dataset()], []  # highdicom reads it
    by_frame = IMAGE_CLASSES[real] and evidence.NumberOfFrames > 1
    shown = list(findings) if by_frame else [max(findings, key=lambda one: (one.calibrated, -one.frame))]
    layer = hd.pr.GraphicLayer(LAYER, 1, "Scores of a neural network", hd.color.CIELabColor.from_rgb(*_CYAN))
    kind = (scorer.sha256, started.isoformat(), "gsps")
    common: dict[str, Any] = {
        "referenced_images": [image],
        "series_instance_uid": object_uid(pseudonyms, "series", evidence.StudyInstanceUID, *kind),
        "series_number": SERIES_NUMBER,
        "sop_instance_uid": object_uid(pseudonyms, evidence.SOPInstanceUID, *kind, *of_revision(revision)),
        "instance_number": 1,
        "manufacturer": "usvit",
        "manufacturer_model_name": scorer.name[:64],
        "software_versions": scorer.version,
        "device_serial_number": None,
        "content_label": LABEL,
        "content_description": RESEARCH_USE_ONLY,
        "graphic_layers": [layer],
        "graphic_annotations": [
            _annotation(
                image, layer, one, scorer, [*_region(tissue, image), *_outlines(lesions.get(one.frame))], by_frame
            )
            for one in shown
        ],
        "series_description": SERIES_DESCRIPTION,
        "specific_character_set": UTF8,
    }
    if is_grey:
        state: Dataset = hd.pr.GrayscaleSoftcopyPresentationState(**common)
        _display_as_the_source(state, header)
    else:
        state = hd.pr.ColorSoftcopyPresentationState(**common, icc_profile=srgb_profile())
    stamp(state, evidence, started=started, structured=False)
    del state.ContentDate, state.ContentTime  # a presentation state has these instead:
    state.PresentationCreationDate = DA(started.date())
    state.PresentationCreationTime = TM(started.time().replace(microsecond=0, tzinfo=None))
    state.ContentCreatorName = "usvit^"
    state.Laterality = ""  # the scanner's value is not trusted
    del state.DisplayedAreaSelectionSequence[0].PixelOriginInterpretation  # for images in tiles only
    rename_references(state, {image.SOPInstanceUID: real})
    return state


def _annotation(
    image: Dataset,
    layer: hd.pr.GraphicLayer,
    one: Finding,
    scorer: ScoringModel,
    outlines: list[hd.pr.GraphicObject],
    by_frame: bool,
) -> hd.pr.GraphicAnnotation:
    lines = [RESEARCH_USE_ONLY, *caption_lines(one, scorer, int(image.NumberOfFrames), "")]
    caption = hd.pr.TextObject(
        "\r\n".join(lines), "DISPLAY", bounding_box=_CAPTION_BOX, text_justification=hd.pr.TextJustificationValues.LEFT
    )
    return hd.pr.GraphicAnnotation(
        referenced_images=[image],
        graphic_layer=layer,
        referenced_frame_number=one.frame + 1 if by_frame else None,
        graphic_objects=outlines,
        text_objects=[caption],
    )


def _region(tissue: Box | None, image: Dataset) -> list[hd.pr.GraphicObject]:
    if tissue is None:
        return []
    left, top, right, bottom = (
        float(min(max(value, 0), most)) for value, most in zip(tissue, (image.Columns, image.Rows) * 2, strict=True)
    )
    corners = np.array([[left, top], [right, top], [right, bottom], [left, bottom], [left, top]])
    return [hd.pr.GraphicObject("POLYLINE", corners, "PIXEL")]


def _outlines(lesion: NDArray[np.bool_] | None) -> list[hd.pr.GraphicObject]:
    """Return closed lines along the outer borders of a mask, the largest parts first, within a pixel."""
    if lesion is None:
        return []
    borders, _ = cv2.findContours(lesion.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    lines = []
    for border in sorted(borders, key=cv2.contourArea, reverse=True)[:_MOST_PARTS]:
        points = cv2.approxPolyDP(border, 1.0, closed=True)[:, 0].astype(float) + 0.5  # from (0, 0), the pixel's corner
        if len(points) > 2:
            lines.append(hd.pr.GraphicObject("POLYLINE", np.concatenate([points, points[:1]]), "PIXEL"))
    return lines


def _display_as_the_source(state: Dataset, header: Dataset) -> None:
    """Copy the numbers that turn stored values into grey levels; words beside them stay behind.

    They are put in by hand: highdicom looks for them in functional groups, which ultrasound images do not have.
    """
    if table := _lookup_table(header, "ModalityLUTSequence"):
        table.ModalityLUTType = "US"  # unspecified
        state.ModalityLUTSequence = [table]
    elif (slope := _number(header, "RescaleSlope")) is not None:
        state.RescaleSlope, state.RescaleIntercept = _short(slope), _short(_number(header, "RescaleIntercept") or 0.0)
        state.RescaleType = "US"
    window: Dataset | None = None
    if table := _lookup_table(header, "VOILUTSequence"):
        window = Dataset()
        window.VOILUTSequence = [table]
    elif None not in (edges := (_number(header, "WindowCenter"), _number(header, "WindowWidth"))):
        window = Dataset()
        window.WindowCenter, window.WindowWidth = (_short(edge or 0.0) for edge in edges)
        function = str(header.get("VOILUTFunction") or "").strip()
        if function in _FUNCTIONS:
            window.VOILUTFunction = function
    if window is not None:
        state.SoftcopyVOILUTSequence = [window]
    if str(header.PhotometricInterpretation).strip() == "MONOCHROME1":
        state.PresentationLUTShape = "INVERSE"  # a presentation state overrides the photometric interpretation


def _number(header: Dataset, keyword: str) -> float | None:
    """Return the first value of an element; None if there is none, or if it is not a number."""
    try:
        value = header.get(keyword)
        number = float(value[0] if isinstance(value, (list, MultiValue)) else value)
    except (TypeError, ValueError, IndexError):
        return None
    return number if math.isfinite(number) else None


def _short(number: float) -> DSfloat:
    return DSfloat(number, auto_format=True)  # at most 16 characters


def _lookup_table(header: Dataset, keyword: str) -> Dataset | None:
    """Return the first lookup table of a sequence, without its explanation."""
    items = header.get(keyword)
    if not items or not {"LUTDescriptor", "LUTData"} <= {element.keyword for element in items[0]}:
        return None
    table = Dataset()
    for name in ("LUTDescriptor", "LUTData"):
        table.add(deepcopy(items[0][name]))
    return table


@cache
def srgb_profile() -> bytes:
    """Return an ICC input profile of sRGB, always with the same bytes."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    profile[12:16] = b"scnr"  # DICOM asks for an input profile; a matrix profile of a display has the same tags
    profile[24:36] = bytes.fromhex("07ea00010001000000000000")  # 2026-01-01 instead of now
    return bytes(profile)
