"""The status page of a node, from its status alone."""

from jinja2 import ChoiceLoader, PackageLoader

from usvit.node.records import NodeStatusRecord
from usvit.reports import LOADERS, environment

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


def node_page(status: NodeStatusRecord) -> str:
    """Render the status of a node as one HTML page without script or network access."""
    loader = ChoiceLoader([PackageLoader("usvit.node"), *LOADERS])
    template = environment().overlay(loader=loader).get_template("node.html.j2")
    return template.render(
        s=status, events=EVENTS, size=size_in_words, sick=[p for p in status.processes if not p.alive]
    )


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
