"""``usvit doctor``: check whether usvit can work on this machine."""

import json

import typer

from usvit.cli import options as o


def doctor(json_: o.Json = False) -> None:
    """Check packages, decoders, device, memory, disk and folders, and say what is missing and how to mend it.

    The exit code is 2 if a main command would fail. Nothing is changed, and nothing touches the network.
    """
    from usvit.errors import EXIT_USER
    from usvit.installation import check_installation

    findings = check_installation()
    if json_:
        print(json.dumps([finding._asdict() for finding in findings], indent=2, ensure_ascii=False))
    else:
        for finding in findings:
            print(f"{finding.level:6}{finding.check:16}{finding.said}")
    if any(finding.level == "fault" for finding in findings):
        raise typer.Exit(EXIT_USER)
