"""The commands of the documentation that are not run, by the reason; all others run on the phantom."""

import re

from tests.command_blocks.blocks import Command

UNDERSTOOD = {
    "trains, or tests classifiers, for minutes to days; its whole configuration is built": (
        r"usvit (cv|train|transfer|test) ",
        r"usvit pretrain (?!.*--list-)",
    ),
    "trains the runs of a study": (r"usvit study (?!list|best|.*--dry-run)",),
    "serves until it is stopped": (r"usvit review (--demo|study\.yaml)", r"usvit node serve "),
    "needs a service beside it": (
        r"usvit node (status|doctor|pull|mercure) ",
        r"usvit dicom send ",
        r"usvit models pull ",
    ),
    "needs the hub, or a bucket": (r"usvit models push ", r".* --weights hub", r"usvit explain vit_b16 "),
    "needs a cluster of Ray": (r".* --engine ray",),
    "measures for minutes": (r"usvit bench ",),
    "needs data sets or runs of another network than the phantom's": (
        r"usvit explain .*(--source|--path) ",
        r"usvit score .*--base ",
        r"usvit shape (fit|predict) ",
        r"usvit score .*(--seg |--seg-from |--concepts-from )",
        r"usvit data prepare ",
        r"usvit watch .*--labels ",
        r"usvit evaluate .*--repeatability --out ",
        r"usvit study best ",
    ),
    "needs a table whose scores and labels plan a study; tests/planning has one": (r"usvit plan accuracy --like ",),
    "watches a running node; tests/monitoring does": (r"usvit watch NODE_FOLDER ",),
    "needs the answers of readers, which tests/reviewing gives": (
        r"usvit review (status|export|merge) ",
        r"usvit mrmc .*(/|--model )",
    ),
    "builds a kit of gigabytes": (r"usvit kit build ",),
}
"""Reason -> patterns of commands of usvit, which are understood up to where their work begins."""

OTHER_PROGRAMS = {
    "make": "tests/test_demo.py makes the demonstration; `make test` runs this test",
    "pip": "installs packages",
    "env/bin/pip": "installs packages",
    "python3": "makes environments and installs kits; tests/kit runs the installer",
    "ray": "starts a cluster",
    "tensorboard": "is no part of usvit, and serves until it is stopped",
    "mlflow": "serves until it is stopped",
    "wandb": "sends runs to a server",
    "dsrdump": "tests/scoring/dicom_out runs it where dcmtk is installed",
    "dcmpschk": "tests/scoring/dicom_out runs it where dcmtk is installed",
    "for": "dciodvfy: tests/scoring/dicom_out runs it where dicom3tools is installed",
    "#!": "tests/test_docs_slurm.py runs the script of Slurm",
    "openssl": "tests/publishing and tests/node make keys",
    "chmod": "of the system",
    "python": "tests/publishing and tests/exporting run the same code",
    "export": "sets a variable for the commands after it",
}
"""Programs of others -> why they are not run, or which test runs them."""


def reason_not_to_run(command: Command) -> str | None:
    """Why a command of usvit is only understood; None if it is run."""
    for reason, patterns in UNDERSTOOD.items():
        if any(re.match(pattern, command.call) for pattern in patterns):
            return reason
    return None
