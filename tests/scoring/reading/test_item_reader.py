"""Every file gives facts and frames, or says by a code why not."""

import hashlib
import io
import os
import stat
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate
from pydicom.uid import MPEG4HP41

from tests.conftest import REPOSITORY
from tests.data.conftest import save, speckle, write_dicom
from tests.data.io.videos import encapsulated, stream
from usvit.data.audit.flags import pixel_flags
from usvit.data.audit.frame_quality import quality
from usvit.data.datasets.manifest import build_manifest
from usvit.data.io.bad_image import BadImage
from usvit.data.io.decoding import read_image
from usvit.data.io.image_hashes import pixel_sha256
from usvit.data.loading.pixel_store import PixelStore
from usvit.data.transforms.preprocessing import Preprocessing
from usvit.errors import UsvitError
from usvit.progress import NoProgress
from usvit.scoring.items import FAILURES, Failure, ItemFacts, ReadSettings, ScoringItem
from usvit.scoring.reading import item_reader
from usvit.scoring.reading.item_reader import file_sha256_of, open_item, parse_frames, read_item

PLAIN = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def view_of(one: ScoringItem, frame: int, how: ReadSettings) -> np.ndarray:
    """What a second read shows of an unchanged file."""
    with open_item(one, how, file_sha256_of(one, how) or "") as opened:
        return opened.view(frame, how.crop)


def settings(**changed: object) -> ReadSettings:
    return ReadSettings(**{"image_size": 48, "resize": "pad", "crop": "tissue", **changed})


def item(path: Path, **fields: object) -> ScoringItem:
    return ScoringItem(path.name, str(path), **fields)


def outcome(path: Path, *, frame: int | None = None, member: str | None = None, **changed: object) -> list:
    found = list(read_item(item(path, frame=frame, member=member), settings(**changed)))
    return [one for one in found if one is not None]


def failed(path: Path, **options: object) -> str:
    """The code of the one failure that a whole file is."""
    (failure,) = outcome(path, **options)
    assert isinstance(failure, Failure)
    assert failure.code in FAILURES
    return failure.code


def region(left: int, top: int, right: int, bottom: int, data_type: int = 1) -> Dataset:
    data = Dataset()
    data.RegionSpatialFormat, data.RegionDataType, data.RegionFlags = 1, data_type, 0
    data.RegionLocationMinX0, data.RegionLocationMinY0 = left, top
    data.RegionLocationMaxX1, data.RegionLocationMaxY1 = right - 1, bottom - 1
    data.PhysicalUnitsXDirection = data.PhysicalUnitsYDirection = 3
    data.PhysicalDeltaX = data.PhysicalDeltaY = 0.02
    return data


@pytest.fixture
def loop(tmp_path: Path) -> Path:
    """Ten frames, of which 2, 5 and 7 are sharp."""
    sharp = [np.repeat(np.repeat(speckle(seed, 32, 40), 2, 0), 2, 1) for seed in range(10)]
    frames = [
        frame if number in (2, 5, 7) else cv2.GaussianBlur(frame, (0, 0), 3) for number, frame in enumerate(sharp)
    ]
    return write_dicom(tmp_path / "loop", np.stack(frames))


# --- facts


def test_a_dicom_file_s_facts_come_first_and_then_its_frame(tmp_path):
    pixels = speckle(1, 120, 160)
    path = write_dicom(
        tmp_path / "IM1",
        pixels,
        SequenceOfUltrasoundRegions=[region(20, 30, 150, 110), region(40, 50, 80, 90, data_type=2)],
        BurnedInAnnotation="YES",
    )
    facts, frame = outcome(path)
    assert facts == ItemFacts(
        kind="dicom",
        file_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        n_frames=1,
        pixel_spacing_mm=pytest.approx(0.2),
        flags=("doppler", "burned_in"),
        instance=str(dcmread(path).SOPInstanceUID),
        study="1.2.4",
        patient="MRN-1",
        device="LOGIQ E9",
    )
    view = pixels[30:110, 20:150, None].repeat(3, axis=2)
    assert (view_of(item(path), 0, settings()) == view).all()
    assert (frame.pixels == Preprocessing(48, "pad", *PLAIN).resized(view)).all()
    assert frame.pixel_sha256 == pixel_sha256(pixels[:, :, None].repeat(3, axis=2))
    assert frame.quality == quality(view)
    assert list(frame.flags) == pixel_flags(view)
    assert frame.thumbnail is None
    assert not {"MRN-1", "1.2.4", "LOGIQ E9"} & set(repr([facts, frame, item(path)]).split("'"))


def test_a_picture_has_no_header_to_speak_of(tmp_path):
    path = save(speckle(2), tmp_path / "a.jpg")
    facts, frame = outcome(path)
    assert facts == ItemFacts("picture", hashlib.sha256(path.read_bytes()).hexdigest(), 1, None, (), "", "", "", "")
    assert (frame.number, frame.pixels.shape, frame.pixels.dtype) == (0, (48, 48, 3), np.uint8)


def test_a_model_that_was_trained_on_whole_frames_sees_whole_frames(tmp_path):
    path = write_dicom(tmp_path / "a", speckle(1, 120, 160), SequenceOfUltrasoundRegions=[region(20, 30, 150, 110)])
    _, frame = outcome(path, crop="whole")
    assert (frame.pixels == Preprocessing(48, "pad", *PLAIN).resized(read_image(path))).all()
    assert view_of(item(path), 0, settings(crop="whole")).shape == (120, 160, 3)


# --- the same pixels as in training


def scored(manifest, row, size: int, resize: str) -> np.ndarray:
    path = manifest.image_path(row)
    facts, frame = outcome(path, frame=int(row.frame), image_size=size, resize=resize)
    assert frame.pixel_sha256 == row.sha256
    assert facts.kind in ("picture", "dicom")
    return frame.pixels


@pytest.mark.slow
@pytest.mark.parametrize("resize", ["pad", "squash"])
def test_real_images_reach_the_network_as_in_training_bit_for_bit(tmp_path, real_data, resize):
    for label, names in {"benign": (1, 40, 100), "malignant": (3, 11), "normal": (42,)}.items():
        (tmp_path / "busi" / label).mkdir(parents=True)
        for name in names:
            link = tmp_path / "busi" / label / f"{name}.png"
            link.symlink_to(real_data / "Dataset_BUSI_with_GT" / label / f"{label} ({name}).png")
    (tmp_path / "dicom").mkdir()
    rows = ["path,label"]
    for number, path in enumerate(sorted((real_data / "us_dicom").glob("*.dcm"))):
        (tmp_path / "dicom" / path.name).symlink_to(path)
        rows.append(f"{path.name},{('benign', 'malignant')[number // 2 % 2]}")  # the first two show one image
    (tmp_path / "dicom" / "labels.csv").write_text("\n".join(rows))
    for layout, folder, count in (("folder", "busi", 6), ("dicom", "dicom", 6)):
        manifest = build_manifest(layout, {"": tmp_path / folder}, NoProgress())
        store = PixelStore.build(
            manifest, Preprocessing(64, resize, *PLAIN), memory_gb=1, folder=tmp_path, progress=NoProgress()
        )
        assert len(store) == count
        for at, row in enumerate(manifest.usable.itertuples()):
            assert (scored(manifest, row, 64, resize) == store.pixels[at]).all(), row.path


# --- frames


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("all", list(range(10))),
        ("middle", [5]),
        ("every:4", [0, 4, 8]),
        ("every:100", [0]),
        ("top:3", [2, 5, 7]),
        ("top:1", None),
        ("top:10", list(range(10))),
        ("top:99", list(range(10))),
    ],
)
def test_the_policy_chooses_frames_in_their_order(loop, policy, expected):
    facts, *frames = outcome(loop, frames=policy)
    assert facts.n_frames == 10
    if policy == "top:1":
        every = {frame.number: frame.quality for frame in outcome(loop)[1:]}
        expected = [max(every, key=every.get)]
    assert [frame.number for frame in frames] == expected
    for frame in frames:
        assert frame.pixel_sha256 == pixel_sha256(read_image(loop, frame.number))


def test_a_sign_of_life_is_given_for_each_frame_that_is_compared(loop):
    found = list(read_item(item(loop), settings(frames="top:2")))
    assert isinstance(found[0], ItemFacts)
    assert found[1:11] == [None] * 10
    assert len(found) == 13


def test_of_equal_frames_the_first_are_best(tmp_path):
    path = write_dicom(tmp_path / "still", np.stack([speckle(1)] * 5))
    assert [frame.number for frame in outcome(path, frames="top:2")[1:]] == [0, 1]


def test_a_table_s_frame_wins_over_the_policy(loop):
    _, frame = outcome(loop, frame=3, frames="middle")
    assert frame.number == 3
    facts, failure = outcome(loop, frame=10)
    assert isinstance(facts, ItemFacts)
    assert (failure.code, failure.frame) == ("no_such_frame", 10)
    _, failure = outcome(save(speckle(1), loop.parent / "a.png"), frame=1)
    assert (failure.code, failure.frame) == ("no_such_frame", 1)


def test_pages_of_a_tiff_are_frames(tmp_path):
    pages = [Image.fromarray(speckle(seed)) for seed in range(4)]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    facts, *frames = outcome(tmp_path / "a.tif", frames="every:2")
    assert facts.n_frames == 4
    assert [frame.pixel_sha256 for frame in frames] == [
        pixel_sha256(np.stack([speckle(seed)] * 3, axis=2)) for seed in (0, 2)
    ]


@pytest.mark.parametrize("policy", ["all", "top:2"])
def test_a_bad_frame_is_a_failure_of_its_own_and_the_others_are_read(tmp_path, policy):
    pages = [Image.fromarray(speckle(seed)) for seed in range(3)]
    path = tmp_path / "a.tif"
    pages[0].save(path, save_all=True, append_images=pages[1:], compression="tiff_lzw")
    with Image.open(path) as image:
        image.seek(1)
        start, length = image.tag_v2[273][0], image.tag_v2[279][0]
    data = bytearray(path.read_bytes())
    data[start : start + length] = b"\xff" * length
    path.write_bytes(data)
    facts, first, bad, last = outcome(path, frames=policy)
    assert facts.n_frames == 3
    assert (first.number, last.number) == (0, 2)
    assert (bad.code, bad.frame) == ("damaged", 1)


def test_a_header_that_claims_endless_frames_ends(loop, monkeypatch):
    monkeypatch.setattr(item_reader, "MANY_BAD", 4)

    def refuse(*_: object) -> None:
        raise BadImage(loop, "it is cut", "truncated")

    monkeypatch.setattr(item_reader.DicomFile, "frame", refuse)
    for policy in ("all", "top:2"):
        facts, *failures = outcome(loop, frames=policy)
        assert isinstance(facts, ItemFacts)
        assert [(failure.code, failure.frame) for failure in failures] == [
            *(("truncated", number) for number in range(4)),
            ("damaged", None),
        ]


@pytest.mark.parametrize(
    "text", ["", "some", "all:2", "every", "every:", "every:0", "every:-1", "top:1.5", "top:x", "top:٣", "middle:1"]
)
def test_what_is_no_policy_is_refused_with_those_that_are(text):
    with pytest.raises(UsvitError, match=r"every:K .* top:K"):
        parse_frames(text)


def test_policies_are_read():
    assert parse_frames("all") == ("all", 1)
    assert parse_frames(" middle ") == ("middle", 1)
    assert parse_frames("every:10") == ("every", 10)
    assert parse_frames("top:3") == ("top", 3)


# --- what cannot be read


def test_each_kind_of_bad_file_has_its_code(tmp_path):
    whole = write_dicom(tmp_path / "whole.dcm", speckle(1)).read_bytes()
    made = {
        "empty": b"",
        "not_an_image": b"Dear colleague, " * 50,
        "truncated": whole[:-500],
    }
    for code, content in made.items():
        (tmp_path / f"{code}.dcm").write_bytes(content)
        assert failed(tmp_path / f"{code}.dcm") == code
    assert failed(tmp_path / "gone.png") == "not_found"
    assert failed(tmp_path) == "not_an_image"
    assert failed(write_dicom(tmp_path / "report", None)) == "no_pixels"
    assert failed(tmp_path / "whole.dcm", max_bytes=1000) == "too_large"
    bad = save(speckle(1), tmp_path / "cut.png")
    bad.write_bytes(bad.read_bytes()[:-600])
    facts, failure = outcome(bad)
    assert isinstance(facts, ItemFacts)
    assert (failure.code, failure.frame) == ("truncated", None)  # the whole file: it has no other frame


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.dcm")
    assert failed(tmp_path / "pipe.dcm") == "not_an_image"


def test_a_file_that_may_not_be_read_is_unreadable(tmp_path, monkeypatch):
    path = save(speckle(1), tmp_path / "secret.png")
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("usvit.scoring.reading.item_reader.open_regular", refuse)
    assert failed(path) == "unreadable"
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)


def test_what_discovery_found_wrong_is_passed_on(tmp_path):
    assert [*read_item(ScoringItem("a", str(tmp_path / "a"), problem="loop"), settings())] == [Failure("loop")]


@pytest.mark.parametrize(
    ("error", "code"), [(MemoryError(), "crashed"), (RecursionError("deep"), "damaged"), (KeyError("x"), "damaged")]
)
def test_whatever_a_decoder_raises_is_a_failure(tmp_path, monkeypatch, error, code):
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(item_reader.PictureFile, "frame", fail)
    facts, failure = outcome(save(speckle(1), tmp_path / "a.png"))
    assert isinstance(facts, ItemFacts)
    assert failure.code == code
    monkeypatch.setattr(item_reader, "kind_of", fail)
    assert failed(tmp_path / "a.png") == code


def test_a_failure_shows_nothing_of_the_file(tmp_path):
    path = tmp_path / "DOE_JANE.dcm"
    write_dicom(path, speckle(1), PhotometricInterpretation="DOE JANE")
    (failure,) = outcome(path)
    assert failure.code == "unsupported_pixels"
    assert "DOE" not in repr(failure)
    with pytest.raises(BadImage) as caught:
        view_of(item(path), 0, settings())
    assert caught.value.code == "unsupported_pixels"


def test_a_view_that_is_not_there_is_a_bad_image(tmp_path, loop):
    for place, frame, code in ((loop, 10, "no_such_frame"), (tmp_path / "gone", 0, "not_found")):
        with pytest.raises(BadImage) as caught:
            view_of(item(place), frame, settings())
        assert caught.value.code == code


# --- archives


def archive(path: Path, members: dict[str, bytes], **options: object) -> Path:
    with zipfile.ZipFile(path, "w", **{"compression": zipfile.ZIP_DEFLATED, **options}) as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    return path


@pytest.mark.slow
def test_a_member_is_read_as_the_file_itself(tmp_path, loop):
    picture = save(speckle(3), tmp_path / "a.png")
    path = archive(
        tmp_path / "all.zip", {"x/loop": loop.read_bytes(), "../a.png": picture.read_bytes(), "t.txt": b"text " * 99}
    )
    for member, alone in (("x/loop", loop), ("../a.png", picture)):
        facts, *frames = outcome(path, member=member)
        same, *others = outcome(alone)
        assert facts == same
        assert len(frames) == len(others) > 0
        for one, other in zip(frames, others, strict=True):
            assert one.pixel_sha256 == other.pixel_sha256
            assert (one.pixels == other.pixels).all()
    assert failed(path, member="t.txt") == "not_an_image"
    assert failed(path, member="gone.png") == "archive"
    assert (view_of(item(path, member="../a.png"), 0, settings()) == speckle(3)[:, :, None]).all()


def test_members_that_are_encrypted_damaged_empty_or_bombs_fail(tmp_path):
    picture = save(speckle(3), tmp_path / "a.png").read_bytes()
    path = archive(tmp_path / "a.zip", {"a.png": picture, "empty.png": b"", "bomb.bmp": b""})
    assert failed(path, member="empty.png") == "empty"
    data = bytearray(path.read_bytes())
    data[200:260] = b"\0" * 60
    (tmp_path / "damaged.zip").write_bytes(data)
    assert failed(tmp_path / "damaged.zip", member="a.png") in ("archive", "not_an_image")
    (tmp_path / "cut.zip").write_bytes(data[:100])
    assert failed(tmp_path / "cut.zip", member="a.png") == "archive"
    assert failed(tmp_path / "gone.zip", member="a.png") == "not_found"
    # The flag of encryption, in the local header and in the index.
    encrypted = bytearray(path.read_bytes())
    for magic, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        encrypted[encrypted.index(magic) + offset] |= 1
    (tmp_path / "locked.zip").write_bytes(encrypted)
    assert failed(tmp_path / "locked.zip", member="a.png") == "archive"
    bomb = archive(tmp_path / "bomb.zip", {"zeros": bytes(10_000_000), "a.png": picture + bytes(10_000_000)})
    assert failed(bomb, member="zeros") == "not_an_image"
    assert failed(bomb, member="a.png", max_bytes=100_000) == "too_large"


# --- thumbnails


def test_a_thumbnail_is_a_small_jpeg_of_the_tissue_without_metadata(tmp_path):
    pixels = np.full((300, 400), 255, np.uint8)
    pixels[100:280, 20:380] = 60
    pixels[100:280:8, 20:380] = 90
    path = write_dicom(tmp_path / "a", pixels, SequenceOfUltrasoundRegions=[region(20, 100, 380, 280)])
    for crop in ("tissue", "whole"):  # what lies beside the tissue may name the patient
        _, frame = outcome(path, thumbnail_side=90, crop=crop)
        shown = Image.open(io.BytesIO(frame.thumbnail))
        assert (shown.format, shown.size) == ("JPEG", (90, 45))
        assert np.asarray(shown).max() < 130
        assert not shown.getexif()
        assert set(shown.info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"}
    exif = Image.Exif()
    exif[0x010E] = "DOE JANE"
    Image.fromarray(speckle(1)).save(tmp_path / "a.jpg", exif=exif, comment=b"DOE JANE")
    _, frame = outcome(tmp_path / "a.jpg", thumbnail_side=90, pictures=True)
    assert b"DOE" not in frame.thumbnail
    assert Image.open(io.BytesIO(frame.thumbnail)).size == (56, 40)  # not enlarged


def test_without_a_known_tissue_region_a_thumbnail_must_be_asked_for(tmp_path):
    smooth = np.tile(np.arange(20, 180, dtype=np.uint8), (120, 1))
    plain, whole = save(smooth, tmp_path / "a.png"), write_dicom(tmp_path / "a", smooth)
    for path in (plain, whole):
        for asked, shown in (({}, False), ({"pictures": True}, True), ({"keep_words": True}, True)):
            _, frame = outcome(path, thumbnail_side=90, **asked)
            assert (frame.thumbnail is not None) is shown
    said = write_dicom(tmp_path / "b", smooth, BurnedInAnnotation="YES")
    for asked, shown in (({"pictures": True}, False), ({"keep_words": True}, True)):
        assert (outcome(said, thumbnail_side=90, **asked)[1].thumbnail is not None) is shown


@pytest.mark.slow
def test_a_loop_gives_the_same_frames_as_a_video_as_dicom_and_in_an_archive(tmp_path):
    video = stream("h264.mp4")
    (tmp_path / "a").write_bytes(video)
    (tmp_path / "b").write_bytes(encapsulated(video, MPEG4HP41, 7))
    archive(tmp_path / "c.zip", {"x/a": video})
    found = [
        outcome(tmp_path / "a", frames="every:3"),
        outcome(tmp_path / "b", frames="every:3"),
        outcome(tmp_path / "c.zip", member="x/a", frames="every:3"),
    ]
    for facts, *frames in found:
        assert facts.n_frames == 7 and [frame.number for frame in frames] == [0, 3, 6]
    assert len({tuple(frame.pixel_sha256 for frame in frames) for _, *frames in found}) == 1
    (tmp_path / "a").write_bytes(video[:200])
    assert failed(tmp_path / "a") in ("damaged", "truncated")


def test_every_frame_of_an_animation_is_scored(tmp_path):
    frames = [Image.fromarray(speckle(seed)) for seed in range(3)]
    for name in ("a.gif", "a.webp", "a.png", "a.tif"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], lossless=True)
        facts, *found = outcome(tmp_path / name)
        assert facts.n_frames == 3
        assert [frame.number for frame in found] == [0, 1, 2]
        assert len({frame.pixel_sha256 for frame in found}) == 3


def test_a_range_that_was_assumed_is_a_flag_and_an_unknown_one_a_failure(tmp_path):
    deep = speckle(0).astype(np.uint16) * 16
    for name in ("a.png", "a.tif", "a.dcm"):
        if name == "a.dcm":
            write_dicom(tmp_path / name, deep)
        else:
            save(deep, tmp_path / name)
        facts, frame = outcome(tmp_path / name)
        assert facts.flags == ("assumed_range",)
        assert "blank" not in frame.flags
        assert outcome(save(deep * 16, tmp_path / "whole.png"))[0].flags == ()
    assert failed(save(speckle(0).astype(np.int32) - 99, tmp_path / "b.tif")) == "unknown_range"


# --- hostile files: in another process, for a decoder may crash it

FUZZ = """
    import sys, warnings
    from pathlib import Path
    import numpy as np
    from usvit.scoring.reading.item_reader import read_item
    from usvit.scoring.items import FAILURES, ItemFacts, Failure, Frame, ScoringItem, ReadSettings

    warnings.simplefilter("ignore")
    settings = ReadSettings(32, "pad", "tissue", thumbnail_side=16)
    outcomes = set()
    for path in sorted(Path(sys.argv[1]).iterdir()):
        whole, random = path.read_bytes(), np.random.default_rng(len(path.name))
        for round in range(int(sys.argv[2])):
            data = bytearray(whole)
            for place in random.integers(0, min(len(data), (len(data), 700)[round % 2]), size=random.integers(1, 12)):
                data[place] = random.integers(256)
            if round % 5 == 0:
                del data[random.integers(len(data)) :]
            target = path.with_name("mutated")
            target.write_bytes(data)
            found = [*read_item(ScoringItem("m", str(target)), settings)]
            assert isinstance(found[0], ItemFacts) or (len(found) == 1 and isinstance(found[0], Failure)), found
            for one in found[1:]:
                assert isinstance(one, (Frame, Failure)), one
            outcomes |= {one.code if isinstance(one, Failure) else "read" for one in found[1:] or found}
            target.unlink()
    assert outcomes <= {*FAILURES, "read"}, outcomes
    print(*sorted(outcomes))
"""


@pytest.mark.slow
def test_whatever_bytes_are_damaged_the_answer_is_facts_frames_or_failures(tmp_path, loop):
    seeds = tmp_path / "seeds"
    for number, suffix in enumerate((".png", ".jpg", ".tif", ".bmp", ".gif", ".webp", ".pgm", ".j2k")):
        save(speckle(number), seeds / f"a{suffix}")
        if suffix in (".png", ".tif", ".pgm", ".j2k"):
            save(speckle(number).astype(np.uint16) * 16, seeds / f"deep{suffix}")
    pages = [Image.fromarray(speckle(seed)) for seed in range(3)]
    pages[0].save(seeds / "pages.tif", save_all=True, append_images=pages[1:], compression="tiff_lzw")
    write_dicom(seeds / "native.dcm", speckle(5), SequenceOfUltrasoundRegions=[region(2, 3, 50, 38)])
    (seeds / "loop.dcm").write_bytes(loop.read_bytes())
    data = dcmread(loop)
    data.compress("1.2.840.10008.1.2.5", generate_instance_uid=False)
    data.save_as(seeds / "rle.dcm")
    data = dcmread(write_dicom(tmp_path / "colour", np.stack([speckle(seed) for seed in (1, 2, 3)], axis=2)))
    buffer = io.BytesIO()
    Image.fromarray(data.pixel_array).save(buffer, "JPEG")
    data.PixelData = encapsulate([buffer.getvalue()])
    data["PixelData"].VR, data["PixelData"].is_undefined_length = "OB", True
    data.PhotometricInterpretation = "YBR_FULL_422"
    data.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.4.50"
    data.save_as(seeds / "jpeg.dcm")
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FUZZ), str(seeds), "8"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert said.returncode == 0, said.stderr[-2000:]
    assert {"read", "damaged", "truncated", "not_an_image"} <= set(said.stdout.split())


def test_the_side_of_each_frame_is_that_of_the_header(tmp_path):
    facts, _ = outcome(write_dicom(tmp_path / "a", speckle(1), ImageLaterality="R"))
    assert [facts.side(number) for number in (0, 1, 99)] == ["right"] * 3
    facts, _ = outcome(save(speckle(2), tmp_path / "a.png"))
    assert facts.side(0) is None
