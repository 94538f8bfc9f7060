import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from tests.records.contents import network
from usvit.data.splits.leakage import (
    LISTED_AT_MOST,
    load_metadata,
    passed_on,
    seen_by,
    seen_by_weights,
    unrecorded,
    write_seen,
)
from usvit.data.splits.seen_groups import refuse_seen
from usvit.errors import LeakageError, UsvitError
from usvit.records import ModelMetadata

TABLE = pd.DataFrame(
    {"image_id": ["a", "b", "c", "d"], "group_id": ["g", "g", "h", "i"], "sha256": ["1", "2", "3", "4"]}
)


@dataclass(frozen=True)
class FirstWeights:
    metadata: ModelMetadata | None
    path: Path | None
    unknown_training: str | None = None
    collections: tuple = ()


def of(content):
    return ModelMetadata.model_validate(network(**content))


def digests(name, count):
    return [hashlib.sha256(f"{name}-{number}".encode()).hexdigest() for number in range(count)]


@pytest.fixture
def upstream(tmp_path):
    """The folder of a pre-training on more images than metadata lists."""
    folder = tmp_path / "upstream"
    folder.mkdir()
    seen = write_seen(folder, {"train": digests("image", LISTED_AT_MOST + 1), "val": digests("val", 3)}).content()
    (folder / "model.json").write_text(json.dumps(network(**seen)))
    return folder


def weights_of(folder):
    return FirstWeights(load_metadata(folder / "model.safetensors"), folder / "model.safetensors")


def test_what_was_seen_upstream_was_seen():
    seen = seen_by(of({"seen_sha256": {"train": ["1"], "val": ["2"], "upstream": ["3"]}}))
    assert all(digest in seen for digest in "123") and "4" not in seen and len(seen) == 3
    assert "3" in seen.of_parts("upstream") and "1" not in seen.of_parts("val", "upstream")
    assert not seen_by(of({})) and not seen_by_weights(FirstWeights(None, None))


def test_a_seen_image_is_named_by_its_group_with_all_its_images():
    with pytest.raises(LeakageError, match=r"The network N has seen images of 1 groups \(2 images\) .*: g\. Start"):
        refuse_seen(TABLE, {"2", "9"}, "The network N")
    refuse_seen(TABLE, {"9"}, "The network N")
    refuse_seen(TABLE, set(), "The network N")


def test_a_metadata_is_read_where_there_is_one(tmp_path):
    weights = tmp_path / "model.safetensors"
    assert load_metadata(weights) is None
    (tmp_path / "model.json").write_text(json.dumps(network(architecture="vit_b32")))
    assert load_metadata(weights).content() == network(architecture="vit_b32")
    for damaged, why in (("{", "it is damaged"), ("[]", "expected a JSON object")):
        (tmp_path / "model.json").write_text(damaged)
        with pytest.raises(UsvitError, match=rf"model\.json: {why}"):
            load_metadata(weights)
    for strange in (["1"], {"train": "1"}, {"files": [{"file": "seen"}]}):
        (tmp_path / "model.json").write_text(json.dumps(network(seen_sha256=strange)))
        with pytest.raises(UsvitError, match="seen_sha256"):
            load_metadata(weights)


def test_a_short_list_stays_in_the_metadata(tmp_path):
    assert write_seen(tmp_path, {"train": ["b", "a"], "val": ["c"]}).content()["seen_sha256"] == {
        "train": ["b", "a"],
        "val": ["c"],
        "upstream": [],
    }
    assert not list(tmp_path.iterdir())


def test_a_long_list_lies_sorted_in_a_file_beside_the_metadata(upstream):
    told = json.loads((upstream / "model.json").read_text())["seen_sha256"]
    (entry,) = told["files"]
    content = (upstream / entry["file"]).read_bytes()
    expected = sorted(map(bytes.fromhex, digests("image", LISTED_AT_MOST + 1)))
    assert content == b"".join(expected), "nothing but the hashes, 32 bytes each"
    assert entry["sha256"] == hashlib.sha256(content).hexdigest() and entry["count"] == LISTED_AT_MOST + 1
    assert told["train"] == [] and told["val"] == digests("val", 3) and told["upstream"] == []
    assert {file.name for file in upstream.iterdir()} == {"model.json", entry["file"]}


def test_hashes_in_a_file_are_found_and_no_others(upstream):
    seen = seen_by(load_metadata(upstream / "model.safetensors"), upstream)
    listed = digests("image", LISTED_AT_MOST + 1)
    ends = [min(listed), max(listed)]
    assert all(digest in seen for digest in [*listed[:50], *ends, *digests("val", 3)])
    assert not any(digest in seen for digest in [*digests("other", 200), "0" * 64, "f" * 64, "", "xyz", ends[0][:10]])
    assert len(seen) == LISTED_AT_MOST + 4
    assert listed[0] in seen.of_parts("train") and listed[0] not in seen.of_parts("upstream")
    with pytest.raises(LeakageError, match="1 groups"):
        refuse_seen(TABLE.assign(sha256=["1", listed[7], "3", "4"]), seen, "N")


def test_hashes_that_end_or_begin_with_zeros_are_kept(tmp_path):
    strange = ["00" * 32, "ab" + "00" * 31, "00" * 31 + "ab", "ab" * 31 + "00"]
    seen = seen_by(of(write_seen(tmp_path, {"train": [*digests("x", LISTED_AT_MOST), *strange]}).content()), tmp_path)
    assert all(digest in seen for digest in strange) and "ab" * 32 not in seen


def test_one_hash_many_times_is_stored_once(tmp_path):
    (entry,) = write_seen(tmp_path, {"train": digests("x", 5) * LISTED_AT_MOST}).content()["seen_sha256"]["files"]
    assert entry["count"] == 5


def test_the_next_training_takes_the_file_along_as_upstream(upstream, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, before in ((first, upstream), (second, first)):
        folder.mkdir()
        seen = write_seen(folder, {"train": digests(folder.name, 2)}, weights_of(before)).content()
        (folder / "model.json").write_text(json.dumps(network(**seen)))
    told = seen["seen_sha256"]
    (entry,) = told["files"]
    assert entry["part"] == "upstream" and (second / entry["file"]).is_file()
    assert told["upstream"] == sorted([*digests("val", 3), *digests("first", 2)])
    seen = seen_by_weights(weights_of(second))
    assert digests("image", 1)[0] in seen.of_parts("upstream") and digests("first", 1)[0] in seen
    assert passed_on(seen).content()["seen_sha256"]["upstream"] == sorted(
        [*digests("val", 3), *digests("first", 2), *digests("second", 2)]
    )


def test_networks_that_have_seen_the_same_images_leave_one_file(upstream, tmp_path):
    own = of({"seen_sha256": {"train": ["ab"], "val": [], "upstream": []}})
    tokenizer, other = (
        weights_of(upstream),
        FirstWeights(own, tmp_path / "other"),
    )
    seen = write_seen(tmp_path, {}, weights_of(upstream), tokenizer, other).content()["seen_sha256"]
    (entry,) = seen["files"]
    assert entry["part"] == "upstream" and (tmp_path / entry["file"]).is_file()
    assert seen["upstream"] == sorted([*digests("val", 3), "ab"]) and seen["train"] == seen["val"] == []


def test_sources_without_hashes_are_named_in_every_training_that_follows(upstream, tmp_path):
    for folder, before, own in (("first", None, ["inat18"]), ("second", tmp_path / "first", ["folder"])):
        (tmp_path / folder).mkdir()
        told = write_seen(tmp_path / folder, {"train": []}, before and weights_of(before), unhashed=own).content()
        (tmp_path / folder / "model.json").write_text(json.dumps(network(**told)))
    seen = seen_by_weights(weights_of(tmp_path / "second"))
    assert told["seen_sha256"]["unhashed"] == ["folder", "inat18"] and seen.unhashed == ("folder", "inat18")
    assert len(seen) == 0 and "folder" not in seen
    assert (
        "folder and inat18" in unrecorded(seen, "The network N")
        and unrecorded(seen_by(of({})), "The network N") is None
    )
    known = write_seen(tmp_path, {}, weights_of(upstream), weights_of(tmp_path / "second")).content()["seen_sha256"]
    assert known["unhashed"] == ["folder", "inat18"] and [entry["part"] for entry in known["files"]] == ["upstream"]


def test_long_lists_of_both_stages_become_two_files(upstream, tmp_path):
    seen = write_seen(tmp_path, {"train": digests("more", LISTED_AT_MOST + 1)}, weights_of(upstream)).content()
    assert [entry["part"] for entry in seen["seen_sha256"]["files"]] == ["upstream", "train"]
    known = seen_by(of(seen), tmp_path)
    assert digests("more", 1)[0] in known and digests("image", 1)[0] in known


def test_files_that_are_missing_cut_changed_or_elsewhere_are_refused(upstream, tmp_path):
    weights = upstream / "model.safetensors"
    metadata = load_metadata(weights)
    (file,) = upstream.glob("seen-*.sha256")
    content = file.read_bytes()
    for damaged in (content[:-32], content[:-1], content[::-1], b""):
        file.write_bytes(damaged)
        with pytest.raises(UsvitError, match=r"seen-.* is damaged or another file.*Copy it again"):
            load_metadata(weights)
    file.unlink()
    with pytest.raises(UsvitError, match=r"Cannot read .*seen-.*No such file"):
        load_metadata(weights)
    with pytest.raises(UsvitError, match="without its folder"):
        seen_by(metadata)
    (tmp_path / "outside.sha256").write_bytes(content)
    for name in ("../outside.sha256", str(tmp_path / "outside.sha256"), "outside.sha256"):
        metadata.seen_sha256.files[0].file = name
        with pytest.raises(UsvitError, match="unknown way"):
            seen_by(metadata, upstream)
