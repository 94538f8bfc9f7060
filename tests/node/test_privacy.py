"""Nobody's name, id, institution or UID is in what a node tells: logs, audit log, status page, metrics, processes."""

import json
from pathlib import Path

import pytest
from pynetdicom import AE
from pynetdicom.sop_class import Verification
from typer.testing import CliRunner

from tests.node.images import RunningNode, image
from usvit.node import node_status
from usvit.node.cli.node import app
from usvit.node.page import node_page
from usvit.node.watching.prometheus import prometheus_text

pytestmark = pytest.mark.slow

PLANTED = {
    "PatientName": "Zyxwolski^Quirina",
    "PatientID": "QZ-PLANTED-4711",
    "InstitutionName": "Xanthippe Clinic",
    "AccessionNumber": "ACCQZ99",
    "ReferringPhysicianName": "Wolfgramm^Ottokar",
    "OperatorsName": "Vlczek^Odo",
    "StudyInstanceUID": "1.2.826.0.1.3680043.8.498.991199",
    "SeriesInstanceUID": "1.2.826.0.1.3680043.8.498.991199.5",
}
SOP = "1.2.826.0.1.3680043.8.498.991199.5"


def words() -> set[str]:
    """Planted texts, also the parts of names and of paths."""
    found = {*PLANTED.values(), SOP, "991199"}
    return {word for text in found for word in (text, *text.split("^"))}


def named_in(content: bytes) -> list[str]:
    """Return the planted words in bytes, in any case, as UTF-8 and as UTF-16."""
    small = content.lower().replace(b"\0", b"")  # UTF-16 of ASCII without its zeros, and DICOM padding
    return sorted(word for word in words() if word.lower().encode() in small)


def test_planted_words_are_found_in_every_form():
    for form in ("utf-8", "utf-16-le", "utf-16-be", "utf-16"):
        assert named_in(f"x ZYXWOLSKI^quirina {PLANTED['StudyInstanceUID']}".encode(form))
    assert named_in(b"QZ-Planted-4711\0\0 ") and not named_in(b"a study of somebody")


def test_what_a_node_tells_names_nobody(node: RunningNode, tmp_path: Path) -> None:
    good = [
        image(tmp_path / f"{n}.dcm", 30, n, **{**PLANTED, "SOPInstanceUID": f"{SOP}.{n}", "Rows": rows})
        for n, rows in ((1, 64), (2, 200))  # the second fails in the decoder
    ]
    assert node.send(*good).returncode == 0
    # The same UID with other pixels, a UID that is none, a name as AE title, a study that no rule matches.
    node.send(image(tmp_path / "c.dcm", 30, 1, seed=5, **{**PLANTED, "SOPInstanceUID": f"{SOP}.1"}))
    node.send(image(tmp_path / "p.dcm", 30, 3, **{**PLANTED, "SOPInstanceUID": "../../Zyxwolski"}))
    other = {**PLANTED, "StudyInstanceUID": f"{PLANTED['StudyInstanceUID']}.7", "StudyDescription": "Zyxwolski's knee"}
    assert node.send(image(tmp_path / "k.dcm", 31, 1, **{**other, "SOPInstanceUID": f"{SOP}.9"})).returncode == 0
    entity = AE(ae_title="ZYXWOLSKI^QUIRIN")
    entity.add_requested_context(Verification)
    association = entity.associate("127.0.0.1", node.port, ae_title="QZ-PLANTED-4711")
    assert association.is_rejected
    node.wait_for(
        "SELECT count(*) = 2 FROM studies WHERE study_uid LIKE ? AND state IN ('done', 'left_alone')",
        f"{PLANTED['StudyInstanceUID']}%",
    )
    status = node_status(node.path)
    told = {
        "log": node.log.read_bytes(),
        "page": node_page(status).encode(),
        "metrics": prometheus_text(status),
        "status": json.dumps(status.content()).encode(),
        "names of files": "\n".join(map(str, node.config.folder.rglob("*"))).encode(),
        **{name: (node.config.folder / name).read_bytes() for name in ("audit.jsonl", "config.json", "processes.json")},
    }
    for command in (["status"], ["status", "--json"], ["doctor", "--no-models"]):
        told[" ".join(command)] = CliRunner().invoke(app, [*command, str(node.path)]).output.encode()
    for name, pid in json.loads(told["processes.json"]).items():
        for file in ("cmdline", "comm", "environ"):
            told[f"{file} of {name}"] = Path(f"/proc/{pid}/{file}").read_bytes()
        told[f"threads of {name}"] = b"\n".join(one.read_bytes() for one in Path(f"/proc/{pid}/task").glob("*/comm"))
    assert {name: found for name, content in told.items() if (found := named_in(content))} == {}
    # Names and numbers of patients are not even in the database; UIDs and descriptions are.
    database = b"".join(path.read_bytes() for path in node.config.folder.glob("node.sqlite*"))
    found = set(named_in(database))
    assert not found & {"Quirina", "QZ-PLANTED-4711", "Xanthippe Clinic", "ACCQZ99", "Wolfgramm", "Vlczek"}
