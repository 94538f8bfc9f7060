"""Settings of ``usvit dicom send``."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from usvit.config.fields import Option
from usvit.config.sections import Section

_File = Annotated[Path | None, Option(metavar="FILE")]


class SendSettings(Section):
    """The archive to which files are sent, and how."""

    to: Annotated[str | None, Option(metavar="AE@HOST:PORT")] = None
    """Application entity of the archive (C-STORE); exactly one of ``to`` and ``stow`` must be given."""
    stow: Annotated[str | None, Option(metavar="URL")] = None
    """Address of a DICOMweb service (STOW-RS) instead."""
    calling: Annotated[str, Option(metavar="AE")] = "USVIT"
    """AE title of the sender."""
    tls_ca: _File = None
    """Certificates that sign the archive's certificate, as PEM; with ``to``, it turns TLS on."""
    tls_certificate: _File = None
    """Client certificate, if the archive asks for one."""
    tls_key: _File = None
    """Key of the certificate."""
    token_file: _File = None
    """With ``stow``: file that holds a bearer token."""
    timeout: Annotated[float, Field(ge=0.1, le=3600)] = 30.0
    """Seconds to wait for a connection or an answer."""
    record: _File = None
    """List of what was sent. (default: sent.csv in the first folder, or beside the first file)"""
    dry_run: bool = False
    """Count the files, and send nothing."""
