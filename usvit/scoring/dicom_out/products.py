"""Optional files for a scored item: report, Secondary Capture, presentation state, lesion masks, overlays as PNG.

They are written in worker processes without torch. Maps of the networks are passed as arrays (``network_maps``).
"""

import datetime
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset

from usvit.data.burned_in import may_show_words
from usvit.data.io import BadImage, UInt8
from usvit.errors import UsvitError
from usvit.files import for_the_owner_alone, write_atomic, write_json
from usvit.pseudonyms import Pseudonyms
from usvit.scoring.dicom_out.deidentify import evidence_of
from usvit.scoring.dicom_out.findings import MOST_FRAMES, Finding, ScoringModel, finding_of, most_suspicious
from usvit.scoring.dicom_out.network_maps import NetworkMaps
from usvit.scoring.dicom_out.overlay import render, stacked, write_png
from usvit.scoring.items import FAILURES, ReadSettings, ScoringItem
from usvit.scoring.reading.item_reader import Opened, open_item
from usvit.scoring.reading.prepare import is_cut

if TYPE_CHECKING:
    from usvit.scoring.dicom_out.structured_report import Predecessor

KINDS = ("sr", "sc", "gsps", "seg", "overlay", "fhir")
PRODUCT_FAILURES = {
    "no_reference": "the source does not say which image it is (SOP class, instance UID): no object can refer to it",
    "no_region": "no tissue region is known that the picture could be cut to, and any part of it may name the patient: "
    "--pictures draws it unless words are found in it",
    "burned_in": "words seem to be burned into the picture, and no tissue region is known that it could be cut to",
    "several_patients": "the images of the study name different patients, so that one report would mix them",
    "not_written": "the object could not be built from what the source says of itself",
    **FAILURES,
}
"""Reasons why a product is missing; like ``FAILURES``, they quote nothing of the file's content."""


@dataclass(frozen=True)
class Product:
    """One file, or the reason why it is missing."""

    kind: str
    """One of ``KINDS``."""
    path: str | None
    """Path relative to the output folder, with forward slashes; None if the file is missing."""
    error_code: str | None = None
    """A key of ``PRODUCT_FAILURES``."""


@dataclass(frozen=True)
class Order:
    """The products to write for every item of a job."""

    out: Path
    """Folder of the job."""
    scorer: ScoringModel
    wanted: frozenset[str]
    """Products to write, of ``KINDS``."""
    keep_ids: bool
    """Keep the patient's identity, so that the objects are filed in the study of their source."""
    pictures: bool
    """Also draw frames whose tissue region is not known."""
    pseudonyms: Pseudonyms
    """Pseudonyms made with the user's key."""
    started: datetime.datetime
    """Local time at which the job started: the content date and time of the objects."""
    settings: ReadSettings
    """Settings with which the items were read."""
    most: int = MOST_FRAMES
    """Maximum number of frames of an item that are drawn, and listed one by one in the report."""
    revision: int = 0
    """Number of the revision of the study's results, for the UIDs of the objects; 0 for ``usvit score``."""


def write_products(
    order: Order,
    item: ScoringItem,
    rows: Sequence[Mapping[str, Any]],
    maps: NetworkMaps | None = None,
    n_failed: int = 0,
    predecessors: Sequence["Predecessor"] = (),
) -> list[Product]:
    """Write ``dicom/<item_id>-sr.dcm``, ``-sc.dcm``, ``-gsps.dcm`` and ``-seg-<frame>.dcm``, and
    ``overlays/<item_id>-<frame>.png`` and ``fhir/<item_id>.json``.

    Existing files are kept, so that an interrupted job can be resumed; the same arguments give the same bytes. All but
    captures and overlays must refer to a DICOM instance, so other images get none. Of a loop, ``shown_frames`` are
    drawn. Without ``keep_ids``, a frame is drawn only if it can be cut to its tissue region. Any other frame may show
    the patient's name and is left out (``no_region``); with ``pictures`` it is left out only if its header or its
    pixels indicate burned-in text (``burned_in``).

    Args:
        order: the products to write.
        item: the source, which is read again once. If its bytes are not those that were scored, every product that does
            not exist yet has the code ``changed_since_scoring``.
        rows: all rows of ``scores.csv`` for this item.
        maps: maps of frames; other frames are drawn without saliency, and get no mask.
        n_failed: number of frames of the item that could not be scored.
        predecessors: earlier reports that the report of this item replaces.

    Returns:
        One product for each file to write, in the order of ``KINDS``; none for an item without rows.

    Raises:
        UsvitError: the disk is full or cannot be written. A bad source does not raise; its products have a code.
    """
    if not rows:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydicom's quote values of the file
        with ExitStack() as stack:
            stack.enter_context(for_the_owner_alone(order.keep_ids))
            return _ProductWork(
                order, item, rows, maps or NetworkMaps(), n_failed, tuple(predecessors), stack
            ).products()


def products_or_trouble(
    order: Order, item: ScoringItem, rows: Sequence[Mapping[str, Any]], maps: NetworkMaps, n_failed: int
) -> list[Product] | str:
    """Call ``write_products`` in a worker process, which cannot pass an exception back.

    Returns:
        The products, or the message of an error that stops the whole job, such as a full disk.
    """
    try:
        return write_products(order, item, rows, maps, n_failed)
    except UsvitError as error:
        return str(error)


class _ProductWork:
    """Work on one item, which is opened when the first product needs it and stays open (in ``stack``) for all."""

    def __init__(
        self,
        order: Order,
        item: ScoringItem,
        rows: Sequence[Mapping[str, Any]],
        maps: NetworkMaps,
        n_failed: int,
        predecessors: "tuple[Predecessor, ...]",
        stack: ExitStack,
    ):
        self.order, self.item, self.maps, self.n_failed = order, item, maps, n_failed
        self.predecessors = predecessors
        self.item_id, self.is_dicom = str(rows[0]["item_id"]), rows[0]["kind"] == "dicom"
        self.file_sha256, self._stack = str(rows[0]["file_sha256"]), stack
        self.n_frames = int(rows[0]["n_frames"])
        self.findings = [finding_of(row, order.scorer) for row in rows]
        self.shown = most_suspicious(self.findings, order.most)
        self._opened: Opened | None = None
        self._evidence: Dataset | None = None
        self._pictures: dict[int, UInt8 | str] = {}

    def products(self) -> list[Product]:
        done, wanted = [], self.order.wanted
        if "sr" in wanted and self.is_dicom:
            done.append(self._made("sr", f"dicom/{self.item_id}-sr.dcm", self._report))
        if "sc" in wanted:
            done.append(self._made("sc", f"dicom/{self.item_id}-sc.dcm", self._capture))
        if "gsps" in wanted and self.is_dicom:
            done.append(self._made("gsps", f"dicom/{self.item_id}-gsps.dcm", self._presentation_state))
        if "seg" in wanted and self.is_dicom:
            for one in self.shown:
                name = f"dicom/{self.item_id}-seg-{one.frame}.dcm"
                done.append(self._made("seg", name, partial(self._segmentation, one)))
        if "overlay" in wanted:
            for one in self.shown:
                name = f"overlays/{self.item_id}-{one.frame}.png"
                done.append(self._made("overlay", name, partial(self._png, one)))
        if "fhir" in wanted:
            done.append(self._made("fhir", f"fhir/{self.item_id}.json", self._fhir))
        return done

    def _made(self, kind: str, name: str, make: Callable[[Path], None]) -> Product:
        path = self.order.out / name
        if path.is_file():
            return Product(kind, name)
        try:
            make(path)
        except _RefusedProduct as refused:
            return Product(kind, None, refused.code)
        except BadImage as error:
            return Product(kind, None, error.code)
        except (UsvitError, MemoryError):
            raise
        except Exception:  # a header may hold anything: this product is missing, and the job continues
            return Product(kind, None, "not_written")
        return Product(kind, name)

    def _png(self, one: Finding, path: Path) -> None:
        write_png(path, self._drawn(one))

    def _report(self, path: Path) -> None:
        from usvit.scoring.dicom_out.structured_report import report_of

        report = report_of(
            self._referable(),
            self.findings,
            self.order.scorer,
            item_id=self.item_id,
            pseudonyms=self.order.pseudonyms,
            started=self.order.started,
            most=self.order.most,
            n_failed=self.n_failed,
            predecessors=self.predecessors,
            revision=self.order.revision,
        )
        _save(path, report)

    def _fhir(self, path: Path) -> None:
        from usvit.scoring.dicom_out.fhir import bundle_of

        bundle = bundle_of(
            self._source(),
            self.shown,
            self.order.scorer,
            item_id=self.item_id,
            started=self.order.started,
            n_frames=len(self.findings),
            n_failed=self.n_failed,
        )
        write_json(path, bundle)

    def _presentation_state(self, path: Path) -> None:
        from usvit.scoring.dicom_out.presentation_state import presentation_state_of

        evidence, opened = self._referable(), self._source_file()
        assert opened.header is not None
        state = presentation_state_of(
            evidence,
            self.shown,
            self.order.scorer,
            header=opened.header,
            tissue=opened.region(self.order.settings.crop),
            lesions={one.frame: mask for one in self.shown if (mask := self._lesion(one)) is not None},
            pseudonyms=self.order.pseudonyms,
            started=self.order.started,
            revision=self.order.revision,
        )
        _save(path, state)

    def _segmentation(self, one: Finding, path: Path) -> None:
        from usvit.scoring.dicom_out.lesion_segmentation import segmentation_of

        evidence, mask = self._referable(), self._lesion(one)
        assert mask is not None, "the frame was read for its map"
        found = segmentation_of(
            evidence,
            one.frame,
            mask,
            self.order.scorer.of_masks,
            pseudonyms=self.order.pseudonyms,
            started=self.order.started,
            revision=self.order.revision,
        )
        _save(path, found)

    def _lesion(self, one: Finding) -> NDArray[np.bool_] | None:
        evidence, settings = self._source(), self.order.settings
        shape, tissue = (evidence.Rows, evidence.Columns), self._source_file().region(settings.crop)
        return self.maps.lesion_of_frame(one.frame, shape, tissue, settings)

    def _capture(self, path: Path) -> None:
        from usvit.scoring.dicom_out.secondary_capture import capture_of

        evidence = self._source()
        drawn, frames, code = [], [], "burned_in"
        for one in self.shown:
            try:
                drawn.append(self._drawn(one))
                frames.append(one.frame)
            except _RefusedProduct as refused:
                code = refused.code
            except BadImage as error:
                code = error.code
        if not drawn:
            raise _RefusedProduct(code)
        capture = capture_of(
            evidence,
            stacked(drawn),
            frames,
            self.order.scorer,
            header=self._source_file().header,
            has_saliency=any(frame in self.maps.saliency for frame in frames),
            lossy=not self.is_dicom and self._source_file().head.startswith(b"\xff\xd8\xff"),
            pseudonyms=self.order.pseudonyms,
            started=self.order.started,
            revision=self.order.revision,
        )
        _save(path, capture)

    def _referable(self) -> Dataset:
        """Return the evidence, to which an object can refer."""
        evidence = self._source()
        if not (evidence.SOPClassUID and evidence.SOPInstanceUID):
            raise _RefusedProduct("no_reference")
        return evidence

    def _source(self) -> Dataset:
        if self._evidence is None:
            header = self._source_file().header
            self._evidence = evidence_of(header, self.item, self.order.pseudonyms, keep_ids=self.order.keep_ids)
        return self._evidence

    def _source_file(self) -> Opened:
        """Return the source, whose bytes are those that were scored.

        Raises:
            BadImage: the bytes have changed, or the source cannot be read.
        """
        if self._opened is None:
            self._opened = self._stack.enter_context(open_item(self.item, self.order.settings, self.file_sha256))
        return self._opened

    def _drawn(self, one: Finding) -> UInt8:
        if one.frame not in self._pictures:
            try:
                self._pictures[one.frame] = self._draw(one)
            except BadImage as error:
                self._pictures[one.frame] = error.code
        found = self._pictures[one.frame]
        if isinstance(found, str):
            raise _RefusedProduct(found)
        return found

    def _draw(self, one: Finding) -> UInt8 | str:
        """Return the picture, or the code of the reason why there is none."""
        evidence = self._source()
        view = self._source_file().view(one.frame, self.order.settings.crop)
        cut = self.is_dicom and is_cut(view, evidence.Rows, evidence.Columns)
        if not (self.order.keep_ids or cut):
            if not self.order.pictures:
                return "no_region"
            if not {"burned_in", "text"}.isdisjoint(one.flags) or may_show_words(view):
                return "burned_in"
        saliency = self.maps.saliency.get(one.frame)
        return render(view, one, self.order.scorer, n_frames=self.n_frames, saliency=saliency)


class _RefusedProduct(Exception):
    """A product that must not or cannot be written, with a code of ``PRODUCT_FAILURES``."""

    def __init__(self, code: str):
        self.code = code


def _save(path: Path, data: Dataset) -> None:
    write_atomic(path, lambda file: data.save_as(file, enforce_file_format=True))
