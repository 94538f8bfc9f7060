"""One structured report for all scored images of a study, written in a worker process without torch."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydicom import Dataset

from usvit.data.io import BadImage, PatientIdentity, differing_patients
from usvit.errors import UsvitError
from usvit.files import for_the_owner_alone, write_atomic
from usvit.scoring.dicom_out.deidentify import evidence_of
from usvit.scoring.dicom_out.findings import finding_of
from usvit.scoring.dicom_out.products import Order, Product
from usvit.scoring.items import ScoringItem
from usvit.scoring.reading.item_reader import open_item

if TYPE_CHECKING:
    from usvit.scoring.dicom_out.structured_report import Predecessor


@dataclass(frozen=True)
class ReportedItem:
    """A scored file of the study."""

    item: ScoringItem
    rows: tuple[Mapping[str, Any], ...]
    """Its rows of ``scores.csv``; at least one."""
    n_failed: int = 0
    """Number of its frames that could not be scored."""


def write_study_report(
    order: Order,
    name: str,
    sources: Sequence[ReportedItem],
    predecessors: "Sequence[Predecessor]" = (),
    n_missing: int = 0,
) -> Product | str:
    """Write ``dicom/<name>-sr.dcm``.

    Args:
        order: folder, networks, identity and time of the report.
        name: pseudonym of the study.
        sources: scored files of one study. Those that have changed or are no instance are counted as missing.
        predecessors: earlier reports that this one replaces.
        n_missing: number of images of the study that the report lacks.

    Returns:
        The report or the reason why it is missing; or the text of an error that stops all work, such as a full disk.
    """
    from usvit.scoring.dicom_out.structured_report import ReportSource, study_report_of

    path = f"dicom/{name}-sr.dcm"
    found, patients = [], list[PatientIdentity]()
    with warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore")  # pydicom's quote values of the file
        stack.enter_context(for_the_owner_alone(order.keep_ids))
        for source in sources:
            file_sha256 = str(source.rows[0]["file_sha256"])
            try:
                with open_item(source.item, order.settings, file_sha256) as opened:
                    evidence = evidence_of(opened.header, source.item, order.pseudonyms, keep_ids=order.keep_ids)
                    patients.append(PatientIdentity.of(opened.header or Dataset()))
            except BadImage:
                continue
            if evidence.SOPClassUID and evidence.SOPInstanceUID:
                findings = [finding_of(row, order.scorer) for row in source.rows]
                found.append(ReportSource(evidence, findings, str(source.rows[0]["item_id"]), source.n_failed))
        if not found:
            return Product("sr", None, "no_reference")
        if differing_patients(patients):
            return Product("sr", None, "several_patients")
        try:
            report = study_report_of(
                found,
                order.scorer,
                pseudonyms=order.pseudonyms,
                started=order.started,
                most=order.most,
                predecessors=predecessors,
                revision=order.revision,
                n_missing=n_missing + len(sources) - len(found),
            )
            write_atomic(order.out / path, lambda file: report.save_as(file, enforce_file_format=True))
        except UsvitError as error:
            return str(error)
        except MemoryError:
            raise
        except Exception:  # a header may hold anything
            return Product("sr", None, "not_written")
    return Product("sr", path)
