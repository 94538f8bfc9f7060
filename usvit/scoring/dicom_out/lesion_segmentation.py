"""DICOM segmentations: the part of the image that the networks mark as the lesion (PS3.3 A.51)."""

import datetime

import highdicom as hd
import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from pydicom.sr.codedict import codes
from pydicom.uid import UltrasoundImageStorage

from usvit.pseudonyms import Pseudonyms
from usvit.scoring.dicom_out.deidentify import IMAGE_CLASSES, UTF8, object_uid, of_revision, stamp
from usvit.scoring.dicom_out.findings import RESEARCH_USE_ONLY, ScoringModel
from usvit.scoring.dicom_out.retired import rename_references, with_class

SERIES_NUMBER = 9804
SERIES_DESCRIPTION = "usvit lesion masks - RESEARCH USE ONLY"
LABEL = "USVIT LESION"


def segmentation_of(
    evidence: Dataset,
    frame: int,
    mask: NDArray[np.bool_],
    scorer: ScoringModel,
    *,
    pseudonyms: Pseudonyms,
    started: datetime.datetime,
    revision: int = 0,
) -> Dataset:
    """Build the segmentation of one frame of a source instance, by highdicom.

    Args:
        evidence: result of ``evidence_of``, with SOP class and instance.
        frame: number of the frame, from 0.
        mask: (H, W) bool of the whole frame; all False if the networks mark no lesion.
        scorer: the networks.
        pseudonyms: used for the UIDs of the object.
        started: time at which the job started.
        revision: number of the revision of the study's results; another revision gives another object.

    Returns:
        The data set, with one binary segment; the same for the same arguments.
    """
    real = evidence.SOPClassUID
    # highdicom wants a geometry of every frame of an image with several, which ultrasound has not.
    image = with_class(evidence, UltrasoundImageStorage)
    by_frame = IMAGE_CLASSES[real] and evidence.NumberOfFrames > 1
    image.NumberOfFrames = 1
    kind = (scorer.sha256, started.isoformat(), "seg")
    network = hd.AlgorithmIdentificationSequence(
        name=scorer.name[:64],
        version=scorer.version,
        family=codes.DCM.ArtificialIntelligence,
    )
    lesion = hd.seg.SegmentDescription(
        segment_number=1,
        segment_label="Lesion",
        segmented_property_category=codes.SCT.MorphologicallyAbnormalStructure,
        segmented_property_type=codes.SCT.Lesion,
        algorithm_type=hd.seg.SegmentAlgorithmTypeValues.AUTOMATIC,
        algorithm_identification=network,
    )
    found: Dataset = hd.seg.Segmentation(
        source_images=[image],
        pixel_array=mask[None].astype(np.uint8),
        segmentation_type=hd.seg.SegmentationTypeValues.BINARY,
        segment_descriptions=[lesion],
        series_instance_uid=object_uid(pseudonyms, "series", evidence.StudyInstanceUID, *kind),
        series_number=SERIES_NUMBER,
        sop_instance_uid=object_uid(pseudonyms, evidence.SOPInstanceUID, *kind, frame, *of_revision(revision)),
        instance_number=frame + 1,
        manufacturer="usvit",
        manufacturer_model_name=scorer.name[:64],
        software_versions=scorer.version,
        omit_empty_frames=False,
        device_serial_number=scorer.sha256[:16],
        content_label=LABEL,
        content_description=RESEARCH_USE_ONLY,
        content_creator_name="usvit^",
        series_description=SERIES_DESCRIPTION,
        specific_character_set=UTF8,
    )
    if by_frame:
        (shown,) = found.PerFrameFunctionalGroupsSequence
        shown.DerivationImageSequence[0].SourceImageSequence[0].ReferencedFrameNumber = frame + 1
    found.PatientOrientation = None
    own = object_uid(pseudonyms, "dimensions", found.SOPInstanceUID)  # highdicom draws one
    for item in (*found.DimensionOrganizationSequence, *found.DimensionIndexSequence):
        item.DimensionOrganizationUID = own
    stamp(found, evidence, started=started, structured=False)
    rename_references(found, {image.SOPInstanceUID: real})
    return found
