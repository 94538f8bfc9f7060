"""The document of a node's status: for its status page and for the terminal."""

from collections.abc import Mapping
from dataclasses import replace

import usvit.documents as doc
from usvit.node.records import NodePeerQueue, NodeStatusRecord
from usvit.reports import duration
from usvit.wording import listed, plural

EVENTS = {
    "association_refused": "An association was refused",
    "instance_conflict": "Another instance with a known UID was refused",
    "instance_full": "Instances were refused: no room",
    "instance_invalid": "A data set that is no valid DICOM instance was refused",
    "instance_mismatch": "An instance of another class or UID than announced was refused",
    "instance_too_large": "An instance larger than receive.max_instance_mb was refused",
    "file_set_aside": "A file of a watched folder was set aside in .usvit/refused",
    "patient_conflict": "The images of a study name different patients: nothing more is made of it",
    "study_failed": "A study could not be scored",
    "delivery_failed": "A delivery failed",
    "delivery_gave_up": "A delivery was given up",
    "commitment_incomplete": "A peer does not have all results",
    "process_restarted": "A process ended and was started again",
    "retention_over_limit": "The folder is larger than retention.max_gb, and nothing may be deleted",
}
"""Event of the audit log -> its words on the page; others appear by their names."""
IMAGES = {
    "stored": "received, not scored yet",
    "scored": "scored",
    "failed": "failed",
    "ignored": "ignored by rule",
    "expired": "deleted (retention)",
}
STUDIES = {
    "open": "images arrive",
    "ready": "complete, wait for a scorer",
    "scoring": "being scored",
    "done": "done",
    "left_alone": "left alone",
    "failed": "failed",
}
RESULTS = {"sr": "structured reports", "sc": "Secondary Captures", "gsps": "presentation states"}


def node_page(status: NodeStatusRecord) -> str:
    """Render the status of a node as one HTML page without script or network access."""
    document = node_document(status)
    return doc.html_page(replace(document, kind=f"{document.kind}. Reload the page for newer figures."))


def node_document(status: NodeStatusRecord) -> doc.Document:
    """Build the document of the status of a node: counts, names of the configuration and pseudonyms."""
    return doc.Document(
        title="Status of the node",
        kind=f"{_time(status.time)} UTC",
        lead=_lead(status),
        sections=[_work(status), _speed(status), _deliveries(status), _disk(status), _problems(status)],
        made_from=f"the files of the node (usvit {status.usvit_version})",
        contents=False,
    )


def _lead(status: NodeStatusRecord) -> list[doc.Block]:
    """Say what is wrong."""
    notes: list[doc.Block] = []
    dead = [one.name for one in status.processes if not one.alive]
    if not status.running:
        notes.append(doc.Note(("The service does not run. Start it with ", doc.code("usvit node serve"), ".")))
    elif dead:
        notes.append(doc.Note(f"Not running at the moment: {listed(dead)}. The supervisor starts each again."))
    if (watch := status.watch) is not None:
        text = f"Watch ({'time unknown' if watch.time is None else _time(watch.time) + ' UTC'}): {watch.verdict}."
        said = " ".join([text, *watch.reasons[:5]])
        notes.append(doc.Paragraph(said) if watch.verdict in ("in control", "not tested") else doc.Note(said))
    needed = status.disk.min_free_bytes
    if needed is not None and status.disk.free_bytes < needed:
        until = size_in_words(needed)
        notes.append(doc.Note(f"Too little free disk: images are refused with 0xA700 until {until} are free."))
    notes += [
        doc.Note(
            (
                f"{plural(one.gave_up, 'result')} for {one.peer} could not be delivered in time. The node keeps them: ",
                *("send them again with ", doc.code("usvit node replay"), "."),
            )
        )
        for one in status.deliveries
        if one.gave_up
    ]
    return notes


def _work(status: NodeStatusRecord) -> doc.DocumentSection:
    kinds = (("Images", status.instances, IMAGES), ("Studies", status.studies, STUDIES))
    rows = [row for kind in (*kinds, ("Results", status.results, RESULTS)) for row in _counts(*kind)]
    blocks: list[doc.Block] = [
        doc.Table("Images, studies and results", ["State or kind", *doc.numbers("Number")], rows)
    ]
    if status.missing_results:
        missing = plural(status.missing_results, "result")
        said = f"{missing} could not be made; the audit log and the database say why."
        blocks.append(doc.Paragraph(said, small=True))
    if status.oldest_study_seconds is not None:
        waited = duration(status.oldest_study_seconds)
        blocks.append(doc.Paragraph(f"The oldest study that is not done has waited for {waited}.", small=True))
    return doc.DocumentSection("Images and studies", blocks, "work")


def _counts(title: str, numbers: Mapping[str, int], words: Mapping[str, str]) -> list[doc.TableRow]:
    rows = [doc.TableRow((words.get(name, name), number)) for name, number in numbers.items()]
    return [doc.TableRow((title,), "group"), *rows]


def _speed(status: NodeStatusRecord) -> doc.DocumentSection:
    speed = status.throughput
    rows = [
        ("received", speed.received_minute, speed.received_hour),
        ("scored", speed.scored_minute, speed.scored_hour),
    ]
    table = doc.Table("Throughput", ["Images", *doc.numbers("Last minute", "Last hour")], rows)
    return doc.DocumentSection("Throughput", [table], "speed")


def _deliveries(status: NodeStatusRecord) -> doc.DocumentSection:
    block: doc.Block = doc.Paragraph("No peers are configured: results stay in the folder of the node.")
    if status.deliveries:
        heads = doc.numbers("Waiting", "Sent", "Committed", "Given up", "Dry run", "Oldest waits")
        block = doc.Table("Deliveries", ["Peer", *heads, "Last error"], [_queue(one) for one in status.deliveries])
    return doc.DocumentSection("Deliveries", [block], "queues")


def _queue(one: NodePeerQueue) -> tuple[doc.Cell, ...]:
    oldest = "–" if one.oldest_waiting_seconds is None else duration(one.oldest_waiting_seconds)
    numbers = one.waiting, one.sent, one.committed, one.gave_up, one.dry_run
    return one.peer, *numbers, oldest, "–" if one.last_error is None else one.last_error


def _disk(status: NodeStatusRecord) -> doc.DocumentSection:
    disk = status.disk
    facts: list[tuple[str, doc.Words]] = [
        ("Free disk", f"{size_in_words(disk.free_bytes)} of {size_in_words(disk.total_bytes)}"),
        ("Images kept", size_in_words(disk.images_bytes)),
        ("Results kept", size_in_words(disk.results_bytes)),
    ]
    facts += [] if disk.max_bytes is None else [("Limit of both", size_in_words(disk.max_bytes))]
    facts.append(("Service", "runs" if status.running else "does not run"))
    facts += [(f"Process {one.name}", "runs" if one.alive else "does not run") for one in status.processes]
    facts.append(("Metrics for Prometheus", doc.link("/metrics", "/metrics")))
    return doc.DocumentSection("Disk and processes", [doc.Facts(facts)], "disk")


def _problems(status: NodeStatusRecord) -> doc.DocumentSection:
    block: doc.Block = doc.Paragraph("None.")
    if status.problems:
        rows: list[tuple[doc.Cell, ...]] = [
            (
                *(_time(one.time), EVENTS.get(one.event, one.event)),
                *("–" if one.study is None else doc.code(one.study), one.detail or "–"),
            )
            for one in status.problems
        ]
        block = doc.Table("Last problems", ["Time (UTC)", "Event", "Study", "Detail"], rows)
    return doc.DocumentSection("Last problems", [block], "problems")


def _time(text: str) -> str:
    """``2026-11-24T12:00:00+00:00`` -> ``2026-11-24 12:00:00``."""
    return text[:19].replace("T", " ")


def size_in_words(n_bytes: int | None) -> str:
    """``1234567`` -> ``1.2 MB``; a dash for None."""
    if n_bytes is None:
        return "–"
    size, unit = float(n_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
