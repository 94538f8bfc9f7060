"""The patient of a study: images of two patients in one study stop it, because one report would mix them.

The database holds pseudonyms of the attributes, which compare like the attributes themselves.
"""

import json
from sqlite3 import Connection

from usvit.data.io import PatientIdentity
from usvit.node.database import add_event, count

CONFLICT = "patient_conflict"
"""``reason`` of a study that is stopped; its state is ``failed``."""


def compare_patient(connection: Connection, study_id: int, patient: PatientIdentity, now: float) -> None:
    """Compare an image that arrives with those of its study before, in an open transaction, and stop the study.

    Args:
        connection: connection to the database.
        study_id: row of the study.
        patient: the patient whom the image names, with pseudonyms as values.
        now: time of the node.
    """
    row = connection.execute("SELECT patient, reason FROM studies WHERE id = ?", (study_id,)).fetchone()
    before = None if row["patient"] is None else _parse(row["patient"])
    if row["reason"] == CONFLICT:
        _leave_images(connection, study_id)
    elif before is not None and (differing := before.differences(patient)):
        stop_study(connection, study_id, now, differing)
    elif (together := patient if before is None else before.merged(patient)) != before:
        connection.execute("UPDATE studies SET patient = ? WHERE id = ?", (_text(together), study_id))


def stop_study(connection: Connection, study_id: int, now: float, differing: tuple[str, ...] = ()) -> None:
    """Stop a study whose images name different patients, in an open transaction; its images are kept, not scored.

    Args:
        connection: connection to the database.
        study_id: row of the study. A scorer that works on it finds that it has lost the study, and writes nothing.
        now: time of the node.
        differing: keywords of the attributes that differ.
    """
    connection.execute(
        "UPDATE studies SET state = 'failed', reason = ?, scorer = NULL, done_at = ? WHERE id = ?",
        (CONFLICT, now, study_id),
    )
    _leave_images(connection, study_id)
    (pseudonym,) = connection.execute("SELECT pseudonym FROM studies WHERE id = ?", (study_id,)).fetchone()
    add_event(connection, CONFLICT, study=pseudonym, differing=", ".join(differing) or "PatientID")
    count(connection, "patient_conflicts")


def _leave_images(connection: Connection, study_id: int) -> None:
    connection.execute("UPDATE instances SET state = 'ignored' WHERE study_id = ? AND state = 'stored'", (study_id,))


def _text(patient: PatientIdentity) -> str:
    return json.dumps([patient.patient_id, patient.issuer, patient.birth_date, sorted(patient.name)])


def _parse(text: str) -> PatientIdentity:
    patient_id, issuer, birth_date, name = json.loads(text)
    return PatientIdentity(patient_id, issuer, birth_date, frozenset(name))
