import hashlib
import io
import json
import zipfile

import numpy as np
import pytest
from PIL import Image

from tests.data.file_server import FileServer, Reply
from usvit.data.datasets import download
from usvit.data.datasets.cards import DataCard, load_card
from usvit.data.datasets.fetch import fetch_dataset
from usvit.errors import UsvitError
from usvit.progress import NoProgress


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "WAITS", (0.0, 0.0, 0.0))
    monkeypatch.setenv("no_proxy", "*")
    with FileServer() as server:
        monkeypatch.setenv("USVIT_ZENODO", server.url("/"))
        yield server


def png() -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)).save(out, "png")
    return out.getvalue()


def archive(names: list[str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as opened:
        for name in names:
            opened.writestr(name, png())
    return out.getvalue()


CURATED = archive(["Curated BUSI/images/benign_id_1.png", "Curated BUSI/masks/benign_id_1_mask.png"])


def offer(server: FileServer, record: int, files: dict[str, bytes], **wrong: object) -> None:
    """A record as Zenodo's API shows it."""
    entries = [
        {
            "id": "a1b2",
            "key": name,
            "size": len(body),
            "checksum": f"md5:{hashlib.md5(body).hexdigest()}",
            "links": {"self": server.serve(f"/api/records/{record}/files/{number}/content", Reply(body))},
        }
        | wrong
        for number, (name, body) in enumerate(files.items())
    ]
    server.serve(f"/api/records/{record}", Reply(json.dumps({"id": record, "files": entries}).encode()))


def test_record_is_downloaded_unpacked_and_put_in_a_folder_of_its_name(server, tmp_path):
    offer(server, 19047974, {"Curated BUSI.zip": CURATED})
    place = fetch_dataset(load_card("curated_busi"), tmp_path / "new", NoProgress())
    assert place == tmp_path / "new" / "curated_busi"
    found = sorted(path.relative_to(place).as_posix() for path in place.rglob("*.png"))
    assert found == ["images/benign_id_1.png", "masks/benign_id_1_mask.png"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["curated_busi"]


def test_what_is_there_is_not_downloaded_again_wherever_it_lies(server, tmp_path):
    offer(server, 19047974, {"Curated BUSI.zip": CURATED})
    card = load_card("curated_busi")
    place = fetch_dataset(card, tmp_path, NoProgress())
    before = len(server.asked)
    assert fetch_dataset(card, tmp_path, NoProgress()) == place
    assert fetch_dataset(card, place, NoProgress()) == place
    assert len(server.asked) == before


def test_several_files_stand_side_by_side(server, tmp_path):
    offer(server, 19047974, {"readme.txt": b"read me", "Curated BUSI.zip": CURATED})
    place = fetch_dataset(load_card("curated_busi"), tmp_path, NoProgress())
    assert sorted(path.name for path in place.iterdir()) == ["images", "masks", "readme.txt"]


def own_card(**fetch: object) -> DataCard:
    card = load_card("breastmnist").model_dump()
    return DataCard.model_validate(card | {"fetch": fetch})


def test_file_by_its_own_address_keeps_its_name(server, tmp_path):
    body = b"an array"
    url = server.serve("/records/1/files/breastmnist_224.npz?download=1", Reply(body))
    card = own_card(files=[{"url": url, "md5": hashlib.md5(body).hexdigest()}])
    place = fetch_dataset(card, tmp_path, NoProgress())
    assert (place / "breastmnist_224.npz").read_bytes() == body


def test_wrong_file_leaves_no_data_set(server, tmp_path):
    offer(server, 19047974, {"Curated BUSI.zip": CURATED}, checksum="md5:" + "0" * 32)
    with pytest.raises(UsvitError, match=r"expected md5 0{32}, found"):
        fetch_dataset(load_card("curated_busi"), tmp_path, NoProgress())
    assert not (tmp_path / "curated_busi").exists()


def test_unsafe_archive_leaves_no_data_set_and_nothing_outside(server, tmp_path):
    offer(server, 19047974, {"Curated BUSI.zip": archive(["images/benign_id_1.png", "../../../evil.png"])})
    with pytest.raises(UsvitError, match="leads out of the folder"):
        fetch_dataset(load_card("curated_busi"), tmp_path / "root", NoProgress())
    assert not (tmp_path / "root" / "curated_busi").exists()
    assert not list(tmp_path.rglob("evil*"))


def test_second_attempt_uses_what_the_first_has_downloaded(server, tmp_path):
    offer(server, 19047974, {"Curated BUSI.zip": CURATED})
    content = "/api/records/19047974/files/0/content"
    server.serve(content, Reply(CURATED, breaks_after=50), Reply(b"", status=500))
    with pytest.raises(UsvitError, match="failed"):
        fetch_dataset(load_card("curated_busi"), tmp_path, NoProgress())
    server.asked.clear()
    server.serve(content, Reply(CURATED))
    fetch_dataset(load_card("curated_busi"), tmp_path, NoProgress())
    assert [headers.get("Range") for path, headers in server.asked if path == content] == ["bytes=50-"]


@pytest.mark.parametrize(
    "record", [b"<html>", b"[]", b"{}", b'{"files": [{"key": "a.zip"}]}', b'{"files": 7}'], ids=range(5)
)
def test_answer_that_is_no_record_is_an_error(server, tmp_path, record):
    server.serve("/api/records/19047974", Reply(record))
    with pytest.raises(UsvitError, match="is not a list of files"):
        fetch_dataset(load_card("curated_busi"), tmp_path, NoProgress())


def test_record_without_files_is_an_error(server, tmp_path):
    offer(server, 19047974, {})
    with pytest.raises(UsvitError, match="has no files"):
        fetch_dataset(load_card("curated_busi"), tmp_path, NoProgress())


@pytest.mark.parametrize("name", ["../a.zip", "a/b.zip", ".hidden", "C:a.zip", ""])
def test_file_name_that_is_no_plain_name_is_refused(server, tmp_path, name):
    offer(server, 19047974, {name: CURATED})
    with pytest.raises(UsvitError, match="not a plain file name"):
        fetch_dataset(load_card("curated_busi"), tmp_path, NoProgress())


def test_archive_of_another_kind_is_kept_for_the_user_to_unpack(server, tmp_path):
    offer(server, 19047974, {"data.rar": b"Rar!"})
    with pytest.raises(UsvitError, match=r"zip files only. Unpack (.*) by hand") as caught:
        fetch_dataset(load_card("curated_busi"), tmp_path, NoProgress())
    path = tmp_path / ".curated_busi.fetch" / "data.rar"
    assert str(path) in str(caught.value)
    assert path.read_bytes() == b"Rar!"


@pytest.mark.parametrize("name", ["busi", "b", "busis", "gdph_sysucc", "breast", "bus_uclm", "folder"])
def test_card_without_an_address_tells_how_to_get_the_data(server, tmp_path, name):
    card = load_card(name)
    with pytest.raises(UsvitError) as caught:
        fetch_dataset(card, tmp_path, NoProgress())
    assert card.how_to_get in str(caught.value)
    assert server.asked == []


def test_agreements_are_named_as_such(tmp_path):
    for name in ("b", "busis"):
        with pytest.raises(UsvitError, match=r"(signed|licence) agreement.*No tool may download it"):
            fetch_dataset(load_card(name), tmp_path, NoProgress())


def test_place_that_is_taken_is_left_alone(server, tmp_path):
    (tmp_path / "curated_busi").mkdir()
    (tmp_path / "curated_busi" / "mine.txt").write_text("mine")
    with pytest.raises(UsvitError, match="exists but does not contain Curated BUSI"):
        fetch_dataset(load_card("curated_busi"), tmp_path, NoProgress())
    assert (tmp_path / "curated_busi" / "mine.txt").read_text() == "mine"
    assert server.asked == []


def test_folder_that_cannot_be_made_is_an_error(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsvitError, match="Choose another --data-root"):
        fetch_dataset(load_card("curated_busi"), tmp_path / "file", NoProgress())


def test_without_a_folder_it_asks_where(server):
    with pytest.raises(UsvitError, match=r"The target folder of .* is not known: pass --data-root"):
        fetch_dataset(load_card("curated_busi"), None, NoProgress())


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"links": {"self": "https://elsewhere.example/a.zip"}}, "on another server"),
        ({"size": 10**15}, "1,000,000,000,000,000 bytes"),
    ],
)
def test_a_record_that_names_another_server_or_a_file_without_end_is_refused(server, tmp_path, wrong, reason):
    offer(server, 19047974, {"a.zip": CURATED}, **wrong)
    with pytest.raises(UsvitError, match=reason):
        fetch_dataset(load_card("curated_busi"), tmp_path, NoProgress())
    assert len(server.asked) == 1
