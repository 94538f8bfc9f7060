"""Migrations of records: the content of an older schema version is brought to the current one when it is read.

No record has another version than 1.0 yet, so ``MIGRATIONS`` is empty. A file is never changed by being read.
"""

from collections.abc import Callable

from usvit.plain_data import Json

MIGRATIONS: dict[tuple[str, str], Callable[[Json], Json]] = {}
"""(``KIND`` of the record, schema version) -> function that returns the content of the next schema version."""


def migrate(content: Json, kind: str) -> Json:
    """Return a record's content after all migrations that its schema version has; ``content`` is not modified.

    Args:
        content: JSON object of any version.
        kind: ``KIND`` of its model.
    """
    while step := MIGRATIONS.get((kind, str(content.get("schema_version")))):
        content = step(content)
    return content
