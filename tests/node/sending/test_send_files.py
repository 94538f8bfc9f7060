import csv
import json
import re
import subprocess

import pydicom
import pytest
from pydicom.uid import ImplicitVRLittleEndian, RLELossless

from tests.data.conftest import speckle, write_dicom
from tests.node.sending.objects import CAPTURE, REPORT, uid_of, write_object
from tests.programs import a_free_port, storescp, tool
from usvit.errors import UsvitError
from usvit.node import send_dicom


def folder_of(tmp_path, n=3):
    """An output folder of ``usvit score``: objects, a table, and what must not be sent."""
    out = tmp_path / "scores"
    uids = [
        write_object(out / "dicom" / f"{k}-{kind}.dcm", f"{k}{kind}", kind) for k in range(n) for kind in ("sc", "sr")
    ]
    (out / "summary.json").write_text("{}")
    write_object(out / "elsewhere.dcm", "elsewhere")
    return out, uids


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_an_output_folder_is_sent_once_and_listed(tmp_path):
    out, uids = folder_of(tmp_path)
    port = a_free_port()
    with storescp(tmp_path / "got", port) as got:
        found = send_dicom(out, to=f"ARCHIVE@127.0.0.1:{port}")
        assert (found.sent, found.before, found.failed, found.left_out) == (6, 0, {}, 0)
        received = {pydicom.dcmread(path).SOPInstanceUID: path for path in got.iterdir()}
        assert set(received) == set(uids)
        times = [path.stat().st_mtime_ns for path in received.values()]
        again = send_dicom(out, to=f"ARCHIVE@127.0.0.1:{port}")
        assert (again.sent, again.before) == (0, 6)
        assert [path.stat().st_mtime_ns for path in received.values()] == times
    rows = rows_of(out / "sent.csv")
    assert [row["file"] for row in rows] == sorted(f"dicom/{k}-{kind}.dcm" for k in range(3) for kind in ("sc", "sr"))
    assert {(row["state"], row["status"]) for row in rows} == {("sent", "0")}
    assert (out / "sent.csv").stat().st_mode & 0o077 == 0
    for path in sorted((out / "dicom").iterdir()):  # byte by byte, without the file meta group
        data = pydicom.dcmread(path)
        assert pydicom.dcmread(received[data.SOPInstanceUID]) == data


def test_only_the_classes_that_are_sent_are_proposed(tmp_path, archive):
    out, uids = folder_of(tmp_path, 1)
    with archive.up():
        send_dicom(out, to=f"ARCHIVE@127.0.0.1:{archive.port}")
    assert archive.classes == [{CAPTURE, REPORT}]
    assert archive.stored == uids


def test_a_file_that_fails_is_listed_and_sent_by_the_next_call(tmp_path, archive):
    out, uids = folder_of(tmp_path, 2)
    archive.statuses = [0, 0xC000, 0xB000]
    with archive.up():
        found = send_dicom(out, to=f"ARCHIVE@127.0.0.1:{archive.port}")
        assert found.partly and (found.sent, found.warned) == (3, 1)
        assert found.failed == {"it cannot understand the object (0xC000)": 1}
        again = send_dicom(out, to=f"ARCHIVE@127.0.0.1:{archive.port}")
        assert (again.sent, again.before, again.partly) == (1, 3, False)
    assert sorted(archive.stored) == sorted(uids)
    assert [row["state"] for row in rows_of(out / "sent.csv")] == ["sent", "failed", "warning", "sent", "sent"]


def test_another_archive_and_another_file_of_the_same_name_are_not_counted_as_sent(tmp_path, archive):
    out, _ = folder_of(tmp_path, 1)
    with archive.up():
        send_dicom(out, to=f"ARCHIVE@127.0.0.1:{archive.port}")
        write_object(out / "dicom" / "0-sr.dcm", "another", "sr")
        found = send_dicom(out, to=f"ARCHIVE@127.0.0.1:{archive.port}")
        assert (found.sent, found.before) == (1, 1)
        assert send_dicom(out, to=f"OTHER@127.0.0.1:{archive.port}", dry_run=True).sent == 2
    assert archive.stored[-1] == uid_of("another")


def test_an_association_that_is_lost_is_opened_again(tmp_path, archive):
    out, uids = folder_of(tmp_path, 2)
    lost = []

    def lose(event):
        if len(archive.asked) == 2 and not lost:
            lost.append(True)
            event.assoc.abort()

    archive.before_answer = lose
    with archive.up():
        found = send_dicom(out, to=f"ARCHIVE@127.0.0.1:{archive.port}")
    assert (found.sent, found.failed) == (4, {})
    assert set(archive.stored) == set(uids)
    assert archive.asked.count(uids[1]) == 2  # with the same UID, because the answer was lost


def test_a_line_that_was_cut_off_is_not_believed(tmp_path, archive):
    out, _ = folder_of(tmp_path, 1)
    with archive.up():
        send_dicom(out, to=f"ARCHIVE@127.0.0.1:{archive.port}")
        whole = (out / "sent.csv").read_bytes()
        (out / "sent.csv").write_bytes(whole[:-10])
        assert send_dicom(out, to=f"ARCHIVE@127.0.0.1:{archive.port}").sent == 1
    assert len(rows_of(out / "sent.csv")) == 2


def test_compressed_files_keep_their_transfer_syntax_and_plain_ones_may_become_implicit(tmp_path):
    folder, port = tmp_path / "in", a_free_port()
    write_dicom(folder / "a.dcm", speckle(1, 32, 32), SOPClassUID=CAPTURE, SOPInstanceUID=uid_of("a"))
    data = pydicom.dcmread(folder / "a.dcm")
    data.SOPInstanceUID = data.file_meta.MediaStorageSOPInstanceUID = uid_of("b")
    data.compress(RLELossless, generate_instance_uid=False)
    data.save_as(folder / "b.dcm")
    with storescp(tmp_path / "got", port, "+xi", "+xa") as got:
        found = send_dicom(folder, to=f"ARCHIVE@127.0.0.1:{port}")
        assert found.sent == 2
    syntaxes = {pydicom.dcmread(path).SOPInstanceUID: pydicom.dcmread(path) for path in got.iterdir()}
    assert syntaxes[uid_of("b")].file_meta.TransferSyntaxUID == RLELossless
    assert (syntaxes[uid_of("a")].pixel_array == pydicom.dcmread(folder / "a.dcm").pixel_array).all()
    port = a_free_port()
    with storescp(tmp_path / "implicit", port, "+xi") as got:  # it accepts nothing but implicit VR
        found = send_dicom(folder, to=f"ARCHIVE@127.0.0.1:{port}", record=tmp_path / "other.csv")
        assert found.sent == 1 and list(found.failed.values()) == [1]
    (path,) = got.iterdir()
    assert pydicom.dcmread(path).file_meta.TransferSyntaxUID == ImplicitVRLittleEndian


@pytest.mark.slow
def test_tls_needs_the_right_authority_and_certificate(tmp_path, pem):
    out, _ = folder_of(tmp_path, 1)
    port = a_free_port()
    to = f"ARCHIVE@127.0.0.1:{port}"
    own = {"tls_certificate": pem["client.pem"], "tls_key": pem["client.key"]}
    with storescp(tmp_path / "got", port, "+tls", pem["server.key"], pem["server.pem"], "+cf", pem["ca.pem"]) as got:
        with pytest.raises(UsvitError, match="TLS with it fails"):
            send_dicom(out, to=to, tls_ca=pem["client.pem"], timeout=5, **own)
        with pytest.raises(UsvitError, match=r"cannot be reached|ended"):
            send_dicom(out, to=to, timeout=3)  # without TLS
        assert send_dicom(out, to=to, tls_ca=pem["ca.pem"], **own).sent == 2
        assert len(list(got.iterdir())) == 2
    (tmp_path / "no.pem").write_text("no certificate")
    with pytest.raises(UsvitError, match="not valid PEM"):
        send_dicom(out, to=to, tls_ca=tmp_path / "no.pem", record=tmp_path / "other.csv")


@pytest.mark.slow
def test_stow_stores_in_orthanc_once(tmp_path, orthanc):
    out, uids = folder_of(tmp_path, 1)
    (tmp_path / "token").write_text("secret-token\n")
    found = send_dicom(out, stow=f"{orthanc.base}/dicom-web", token_file=tmp_path / "token")
    assert (found.sent, found.failed) == (2, {})
    assert orthanc.instances() == set(uids)
    assert send_dicom(out, stow=f"{orthanc.base}/dicom-web/").before == 2
    assert "secret" not in (out / "sent.csv").read_text()
    nowhere = send_dicom(out, stow=f"{orthanc.base}/dicom-web/", record=tmp_path / "x.csv", dry_run=True)
    assert nowhere.sent == 2
    with pytest.raises(UsvitError, match="no DICOMweb service"):
        send_dicom(out, stow=f"{orthanc.base}/nothing-here")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"to": "PACS-10.0.0.5:104"}, "AE@HOST:PORT"),
        ({"to": "A\\B@127.0.0.1:104"}, "AE title"),
        ({"to": "A" * 17 + "@127.0.0.1:104"}, "AE title"),
        ({"to": "PACS@127.0.0.1:0"}, "greater than or equal to 1"),
        ({}, "--to AE@HOST:PORT or --stow URL"),
        ({"to": "PACS@127.0.0.1:1", "stow": "http://127.0.0.1/"}, "either"),
        ({"stow": "ftp://127.0.0.1/"}, "https://host/dicom-web"),
        ({"to": "PACS@127.0.0.1:1", "calling": "B\\C"}, "not an AE title"),
        ({"to": "PACS@127.0.0.1:1", "token_file": "x"}, "--stow"),
        ({"stow": "http://pacs.example/", "token_file": "token"}, "read the token"),
        ({"to": "PACS@127.0.0.1:1"}, "cannot be reached"),
    ],
)
def test_mistakes_are_told_before_anything_is_sent(tmp_path, monkeypatch, arguments, said):
    out, _ = folder_of(tmp_path, 1)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text("t")
    from pathlib import Path

    arguments = {name: Path(value) if name == "token_file" else value for name, value in arguments.items()}
    with pytest.raises(UsvitError, match=re.escape(said)):
        send_dicom(out, **arguments)
    assert not (out / "sent.csv").exists()


def test_links_in_a_folder_do_not_lead_out_of_it(tmp_path, archive):
    inside = write_object(tmp_path / "in" / "a.dcm", "a")
    write_object(tmp_path / "outside" / "b.dcm", "b")
    (tmp_path / "in" / "b.dcm").symlink_to(tmp_path / "outside" / "b.dcm")
    (tmp_path / "in" / "more").symlink_to(tmp_path / "outside")
    (tmp_path / "in" / "dicom").symlink_to(tmp_path / "outside")
    (tmp_path / "in" / "summary.json").write_text("{}")
    with archive.up():
        found = send_dicom(tmp_path / "in", to=f"A@127.0.0.1:{archive.port}")
        assert (archive.stored, found.left_out) == ([inside], 2)
        named = send_dicom(tmp_path / "in" / "b.dcm", to=f"A@127.0.0.1:{archive.port}")  # the user named it
    assert named.sent == 1


@pytest.mark.parametrize("text", ["a,b\n1,2\n", f"{'a' * 200_000},b\n"], ids=["another table", "a long cell"])
def test_a_record_that_is_another_file_is_refused_and_kept(tmp_path, archive, text):
    out, _ = folder_of(tmp_path, 1)
    (tmp_path / "mine.csv").write_text(text)
    with archive.up(), pytest.raises(UsvitError, match=r"mine\.csv is not a list of sent files.*--record"):
        send_dicom(out, to=f"A@127.0.0.1:{archive.port}", record=tmp_path / "mine.csv")
    assert (tmp_path / "mine.csv").read_text() == text and not archive.asked


def test_a_folder_without_dicom_and_a_damaged_file(tmp_path, archive):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a poem")
    with pytest.raises(UsvitError, match="no DICOM file"):
        send_dicom(tmp_path / "in", to="A@127.0.0.1:1")
    write_object(tmp_path / "in" / "a.dcm", "a")
    (tmp_path / "in" / "b.dcm").write_bytes((tmp_path / "in" / "a.dcm").read_bytes()[:140])
    with archive.up():
        found = send_dicom(tmp_path / "in", to=f"A@127.0.0.1:{archive.port}")
    assert (found.sent, found.left_out) == (1, 1) and sum(found.failed.values()) == 1


@pytest.mark.slow
def test_the_command_prints_counts_and_exits_with_3_if_a_file_failed(tmp_path, archive, capsys):
    from typer.testing import CliRunner

    from usvit.cli import app

    out, _ = folder_of(tmp_path, 1)
    archive.statuses = [0xA900]
    with archive.up():
        done = CliRunner().invoke(app, ["dicom", "send", str(out), "--to", f"A@127.0.0.1:{archive.port}", "--json"])
        assert done.exit_code == 3
        assert json.loads(done.stdout)["sent"] == 1
        done = CliRunner().invoke(app, ["dicom", "send", str(out), "--to", f"A@127.0.0.1:{archive.port}"])
        assert done.exit_code == 0 and "1 files sent" in done.stdout and "1 files were sent before" in done.stdout


@pytest.mark.slow
def test_objects_that_storescu_would_send_arrive_the_same(tmp_path):
    """dcmtk's own client is the oracle: what storescp writes does not depend on who sends."""
    path = tmp_path / "in" / "a.dcm"
    write_object(path, "a", "sc")
    written = []
    for name in ("ours", "theirs"):
        port = a_free_port()
        with storescp(tmp_path / name, port) as got:
            if name == "ours":
                send_dicom(path, to=f"ARCHIVE@127.0.0.1:{port}")
            else:
                subprocess.run([tool("storescu"), "127.0.0.1", str(port), str(path)], check=True, capture_output=True)
            (one,) = got.iterdir()
            written.append(one.read_bytes())
    assert written[0][-1000:] == written[1][-1000:]
