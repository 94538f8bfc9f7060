"""``audit.json`` of ``usvit data audit``: as ``docs/reference/audit.schema.json``, as far as it is read back."""

from typing import Annotated

from pydantic import Field

from usvit.records.base import Count, Name, Record, Sha256, Text

_Groups = Annotated[list[Annotated[list[Text], Field(max_length=1_000_000)]], Field(max_length=1_000_000)]


class AuditRecord(Record):
    """What an audit found; schema 1.0 knew fewer kinds of copies."""

    schema_version: Annotated[str, Field(pattern=r"^1\.\d{1,4}$")]
    datasets: Annotated[list[Name], Field(min_length=1, max_length=1000)]
    manifest_sha256: Sha256
    n_images: Count
    exact_duplicates: _Groups
    duplicate_groups: _Groups
    label_conflicts: _Groups
    contamination: _Groups
    card_mismatch: Annotated[list[Text], Field(max_length=100_000)]
    flag_counts: dict[Name, dict[Name, Count]]
