"""Studies: when they count as complete, and what the rules decide."""

import json
from sqlite3 import Connection

from usvit.errors import UsvitError
from usvit.node.config.settings import NodeConfig
from usvit.node.database import NodeDatabase, add_event, count
from usvit.node.patients import CONFLICT
from usvit.node.receiving.instance_store import reopen_study
from usvit.node.rules import decide


def complete_studies(config: NodeConfig, database: NodeDatabase, now: float | None = None) -> int:
    """Decide on each study of which no image has arrived for ``studies.quiet_seconds``.

    Args:
        config: configuration of the node.
        database: its database.
        now: time in seconds since 1970; None: that of the node.

    Returns:
        Number of studies that were decided.
    """
    now = database.now() if now is None else now
    end = now - config.studies.quiet_seconds
    waiting = database.rows("SELECT id FROM studies WHERE state = 'open' AND last_at <= ? ORDER BY last_at, id", (end,))
    decided = 0
    for (study_id,) in waiting:
        with database.transaction() as connection:
            study = connection.execute(
                "SELECT * FROM studies WHERE id = ? AND state = 'open' AND last_at <= ?", (study_id, end)
            ).fetchone()
            if study is not None:  # otherwise an image has arrived in between
                _decide(config, connection, study["id"], study["pseudonym"], now)
                decided += 1
    return decided


def _decide(config: NodeConfig, connection: Connection, study_id: int, pseudonym: str, now: float) -> None:
    images = {
        row["id"]: json.loads(row["attributes"]) | {"calling_ae": row["calling_ae"]}
        for row in connection.execute(
            "SELECT id, attributes, calling_ae FROM instances WHERE study_id = ? AND state != 'expired'", (study_id,)
        )
    }
    decision = decide(config.rules, images)
    rule = decision.rule
    if rule is None or rule.leave_alone:
        reason = "no_rule" if rule is None else "rule"
        connection.execute(
            "UPDATE studies SET state = 'left_alone', rule = ?, model = NULL, reason = ?, done_at = ? WHERE id = ?",
            (rule and rule.name, reason, now, study_id),
        )
        connection.execute(
            "UPDATE instances SET state = 'ignored' WHERE study_id = ? AND state = 'stored'", (study_id,)
        )
        add_event(
            connection, "study_left_alone", study=pseudonym, reason=reason, rule=rule and rule.name, images=len(images)
        )
        count(connection, "studies_left_alone")
        return
    ignored = 0
    for number in images:
        if number in decision.matching:
            connection.execute("UPDATE instances SET state = 'stored' WHERE id = ? AND state = 'ignored'", (number,))
        else:
            ignored += connection.execute(
                "UPDATE instances SET state = 'ignored' WHERE id = ? AND state IN ('stored', 'ignored')", (number,)
            ).rowcount
    connection.execute(
        "UPDATE studies SET state = 'ready', rule = ?, model = ?, reason = NULL WHERE id = ?",
        (rule.name, rule.model, study_id),
    )
    add_event(
        connection,
        "study_complete",
        study=pseudonym,
        rule=rule.name,
        model=rule.model,
        images=len(decision.matching),
        ignored=ignored,
    )


def replay(database: NodeDatabase, study: str) -> str:
    """Let a study be decided, scored and sent again, as a new revision.

    Args:
        database: database of the node.
        study: pseudonym or UID of the study.

    Returns:
        Pseudonym of the study.

    Raises:
        UsvitError: there is no such study, it is being scored, or none of its images is on the disk any more.
    """
    with database.transaction() as connection:
        row = connection.execute(
            "SELECT * FROM studies WHERE pseudonym = ? OR study_uid = ?", (study, study.strip())
        ).fetchone()
        if row is None:
            raise UsvitError(
                "The node has no such study. Pass its pseudonym, as the status page and the audit log show it, or its "
                "StudyInstanceUID."
            )
        name = str(row["pseudonym"])
        if row["reason"] == CONFLICT:
            raise UsvitError(
                f"The images of the study {name} name different patients. Correct them in the archive, and send the "
                "images of each patient again under a StudyInstanceUID of their own."
            )
        if row["state"] in ("ready", "scoring"):
            raise UsvitError(f"The study {name} is being scored. Wait until it is done, then run the command again.")
        changed = connection.execute(
            "UPDATE instances SET state = 'stored' WHERE study_id = ? AND path IS NOT NULL AND state != 'expired'",
            (row["id"],),
        ).rowcount
        if not changed:
            raise UsvitError(f"The images of the study {name} are deleted (retention.images_days). Send them again.")
        if row["state"] in ("done", "failed"):
            reopen_study(connection, row["id"])
        connection.execute("UPDATE studies SET state = 'open' WHERE id = ?", (row["id"],))
        add_event(connection, "study_replayed", study=name, images=changed)
    return name
