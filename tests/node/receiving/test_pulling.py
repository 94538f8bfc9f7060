"""Pulling from Orthanc and from dcmtk's dcmqrscp."""

import re

import pytest
import yaml

from tests.data.conftest import speckle, write_dicom
from tests.node.peers import said
from tests.node.sending.objects import uid_of, write_object
from tests.programs import a_free_port, listens, orthanc_server, running, tool, until
from usvit.errors import UsvitError
from usvit.node import NodeDatabase, pull_studies, send_dicom


def write_images(folder, study, n, **tags):
    """Images of one study in two series; their UIDs."""
    uids = []
    for number in range(n):
        uids.append(uid_of(f"{study}-{number}"))
        own = {
            **{"SOPInstanceUID": uids[-1], "StudyInstanceUID": uid_of(study), "StudyDate": "20260102"},
            **{"SeriesInstanceUID": uid_of(f"{study}-series-{number % 2}"), "PatientName": "Doe^Jane"},
        }
        write_dicom(folder / f"{study}-{number}.dcm", speckle(number, 40, 40), **own, **tags)
    return uids


def config_of(tmp_path, peer, **more):
    path = tmp_path / "node.yaml"
    content = {
        **{"folder": "node", "models": {"main": {"path": "model"}}, "rules": [{"name": "all", "model": "main"}]},
        **{"peers": {"archive": {"timeout_seconds": 10, **peer}}, **more},
    }
    path.write_text(yaml.safe_dump(content))
    return path


def stored(tmp_path):
    database = NodeDatabase(tmp_path / "node" / "node.sqlite")
    try:
        rows = database.rows("SELECT sop_instance_uid, source, path FROM instances ORDER BY id")
        audit = "".join(row["event"] + row["data"] for row in database.rows("SELECT event, data FROM audit_events"))
        assert "Doe" not in audit and uid_of("a") not in audit
        return {row["sop_instance_uid"]: row["source"] for row in rows}
    finally:
        database.close()


@pytest.fixture
def filled(orthanc, tmp_path):
    """An Orthanc with two studies of images and a report; (Orthanc, UIDs of study a)."""
    uids = write_images(tmp_path / "in", "a", 3)
    write_images(tmp_path / "in", "b", 2)
    write_object(tmp_path / "in" / "report.dcm", "report", study="a")
    send_dicom(tmp_path / "in", to=f"ORTHANC@127.0.0.1:{orthanc.dicom}", record=tmp_path / "sent.csv")
    return orthanc, uids


@pytest.mark.slow
@pytest.mark.parametrize("way", ["dicomweb", "cget"])
def test_a_study_is_fetched_once(filled, archive, tmp_path, way):
    orthanc, uids = filled
    peer = {"dicomweb": f"{orthanc.base}/dicom-web"}
    if way == "cget":
        peer = {"ae_title": "ORTHANC", "host": "127.0.0.1", "port": orthanc.dicom}
    config = config_of(tmp_path, peer)
    found = pull_studies(config, "archive", study=uid_of("a"))
    assert (found.studies, found.fetched, found.known, found.left_out, found.failed) == (1, 3, 0, 1, {})
    assert stored(tmp_path) == dict.fromkeys(uids, way)
    again = pull_studies(config, "archive", query={"StudyDate": "20260101-20260131", "PatientName": "Doe*"})
    assert (again.studies, again.fetched, again.known) == (2, 2, 3)
    assert len(stored(tmp_path)) == 5
    none = pull_studies(config, "archive", query={"StudyDate": "19990101"})
    assert (none.studies, none.fetched) == (0, 0)
    (tmp_path / "node").rename(tmp_path / "moved")
    with archive.up():  # pulling leaves no setting behind for other associations of the same process
        assert send_dicom(tmp_path / "in" / "report.dcm", to=f"A@127.0.0.1:{archive.port}").sent == 1


@pytest.mark.slow
def test_c_move_sends_to_the_receiver_of_the_node(tmp_path):
    import threading

    from usvit.files import write_text
    from usvit.node.child_process import ChildProcess
    from usvit.node.config.file import load_node_config

    port = a_free_port()
    with orthanc_server(tmp_path / "orthanc", DicomModalities={"node": ["USVIT", "127.0.0.1", port]}) as orthanc:
        uids = write_images(tmp_path / "in", "a", 3)
        send_dicom(tmp_path / "in", to=f"ORTHANC@127.0.0.1:{orthanc.dicom}", record=tmp_path / "sent.csv")
        receive = {"port": port, "allow": [{"ae_title": "ORTHANC"}], "min_free_gb": 0}
        peer = {"ae_title": "ORTHANC", "host": "127.0.0.1", "port": orthanc.dicom}
        config = config_of(tmp_path, peer, receive=receive)
        settings = load_node_config(config)
        settings.folder.mkdir(mode=0o700)
        frozen = settings.folder / "config.json"
        write_text(frozen, settings.model_dump_json())
        NodeDatabase(settings.database, create=True).close()
        child = ChildProcess("receiver", "usvit.node.receiving.storage_scp:run_receiver", frozen)
        child.start()
        try:
            child.wait_until_ready(threading.Event())
            found = pull_studies(config, "archive", study=uid_of("a"), retrieve="move")
        finally:
            child.ask_to_stop()
            child.end(20)
        assert (found.fetched, found.failed) == (3, {})
        assert stored(tmp_path) == dict.fromkeys(uids, "dimse")


@pytest.mark.slow
def test_dcmqrscp_delivers_by_c_get(tmp_path):
    port, area = a_free_port(), tmp_path / "area"
    area.mkdir()
    (tmp_path / "dcmqrscp.cfg").write_text(
        f'NetworkTCPPort = {port}\nMaxPDUSize = 16384\nMaxAssociations = 16\nUserName = ""\nGroupName = ""\n'
        f"HostTable BEGIN\nHostTable END\nVendorTable BEGIN\nVendorTable END\n"
        f"AETable BEGIN\nQR {area} RW (200, 1024mb) ANY\nAETable END\n"
    )
    uids = write_images(tmp_path / "in", "a", 3, ModalitiesInStudy="US")
    with running(tool("dcmqrscp"), "-c", tmp_path / "dcmqrscp.cfg"):
        until(lambda: listens(port))
        assert send_dicom(tmp_path / "in", to=f"QR@127.0.0.1:{port}").sent == 3
        config = config_of(tmp_path, {"ae_title": "QR", "host": "127.0.0.1", "port": port})
        found = pull_studies(config, "archive", query={"StudyDate": "20260102"}, retrieve="get")
    assert (found.studies, found.fetched, found.failed) == (1, 3, {})
    assert stored(tmp_path) == dict.fromkeys(uids, "cget")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"peer": "archiv", "study": "1.2"}, "Nearest: archive"),
        ({}, "--study UID, or --query"),
        ({"study": "1.2", "query": {"StudyDate": "20260101"}}, "--study UID, or --query"),
        ({"study": "../1.2"}, "must be a UID"),
        ({"query": {"StudyDat": "20260101"}}, "Nearest: StudyDate"),
        ({"query": {"PatientName": "*"}}, "every study"),
        ({"query": {"PatientName": "a\\b"}}, "backslash"),
        ({"study": "1.2", "retrieve": "fetch"}, "way to retrieve"),
        ({"study": "1.2"}, "does not answer"),
    ],
)
def test_mistakes_are_told(tmp_path, arguments, text):
    config = config_of(tmp_path, {"ae_title": "A", "host": "127.0.0.1", "port": a_free_port()})
    with pytest.raises(UsvitError, match=re.escape(text)):
        pull_studies(config, **{"peer": "archive", **arguments})


@pytest.mark.slow
def test_the_command_prints_counts(filled, tmp_path):
    config = config_of(tmp_path, {"dicomweb": f"{filled[0].base}/dicom-web"})
    heard = said(
        "node", "pull", config, "--peer", "archive", "--query", "StudyDate=20260102", "--query", "PatientID=MRN-1"
    )
    assert "5 images of 2 studies fetched" in heard and "1 other objects are left out" in heard
