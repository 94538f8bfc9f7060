"""Data sets of published lists: recognised by name, inherited, refused, and named where the user allows them."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.records.contents import network
from usvit.data.splits import (
    contamination_of,
    contamination_warning,
    names_with_same_images,
    passed_on,
    refuse_contaminated,
    seen_by,
    seen_by_weights,
    together,
    unlisted,
    unrecorded,
    write_seen,
)
from usvit.errors import LeakageError
from usvit.records import ListedSet, ModelMetadata, SeenCollectionRecord

LISTED = SeenCollectionRecord(
    network="USF-X",
    known="listed",
    collection="Open-3",
    source="owner/x@1, README.md",
    note="a note",
    sets=[ListedSet(name="BUS-BRA", cards=["bus_bra"]), ListedSet(name="Private", cards=[])],
)
UNKNOWN = SeenCollectionRecord(
    network="Other", known="unknown", collection=None, source="its paper", note="nobody lists its images", sets=[]
)


@dataclass(frozen=True)
class FoundationWeights:
    metadata: ModelMetadata | None = None
    path: Path | None = None
    unknown_training: str | None = "file weights x.pth"
    collections: tuple[SeenCollectionRecord, ...] = (LISTED,)


def test_a_listed_data_set_is_recognised_by_its_card_by_its_listed_name_and_by_a_card_with_the_same_images():
    for tested in ({"bus_bra": ("bus_bra",)}, {"Private": ("private",)}, {"mine": ("mine", "bus_bra")}):
        (found,) = contamination_of(tested, [LISTED, UNKNOWN])
        assert found.dataset == next(iter(tested)) and found.network == "USF-X"
    assert contamination_of(names_with_same_images(["busi", "busi", "b"]), [LISTED, UNKNOWN]) == ()
    assert names_with_same_images(["b", "b", "a"], {"b": ("c",)}) == {"b": ("b", "c"), "a": ("a",)}


def test_one_contaminated_data_set_of_a_union_is_enough_to_refuse_it():
    tested = names_with_same_images(["busi", "bus_bra"])
    said = r"Contamination: The network N was pre-trained .*bus_bra \('BUS-BRA' in Open-3, which USF-X .*README.md.*"
    with pytest.raises(LeakageError, match=said + "--allow-contaminated"):
        refuse_contaminated(tested, {"The network N": [LISTED]}, allow=False)
    (found,) = refuse_contaminated(tested, {"The network N": [LISTED], "Another": [LISTED]}, allow=True)
    assert found.listed_as == "BUS-BRA"
    assert contamination_warning([found]).startswith("CONTAMINATED. ") and contamination_warning([]) is None
    assert refuse_contaminated(names_with_same_images(["busi"]), {"N": [LISTED]}, allow=False) == ()


def test_every_network_that_starts_from_a_foundation_model_inherits_its_list(tmp_path):
    first = write_seen(tmp_path, {"train": ["1" * 64]}, FoundationWeights()).content()
    metadata = ModelMetadata.model_validate(json.loads(json.dumps(network(**first))))
    assert seen_by(metadata).collections == (LISTED,)
    trained = FoundationWeights(metadata, tmp_path / "model.safetensors", None, ())
    second = write_seen(tmp_path, {"train": ["2" * 64]}, trained, FoundationWeights(collections=(UNKNOWN,))).content()
    assert [one["network"] for one in second["seen_collections"]] == ["USF-X", "Other"]
    ensemble = together([seen_by(metadata), seen_by_weights(FoundationWeights()), seen_by(metadata).of_parts("train")])
    assert ensemble.collections == (LISTED,)
    assert seen_by(metadata).of_parts("train").collections == ()


def test_metadata_without_foundation_models_has_no_new_key(tmp_path):
    written = write_seen(tmp_path, {"train": ["1" * 64]}).content()
    assert (
        set(written) == {"seen_sha256", "seen_copies"} == set(passed_on(seen_by(ModelMetadata(**network()))).content())
    )


def test_a_model_without_a_list_is_a_note_and_not_a_refusal():
    seen = seen_by_weights(FoundationWeights(collections=(UNKNOWN,)))
    assert refuse_contaminated(names_with_same_images(["busi"]), {"N": seen.collections}, allow=False) == ()
    assert "nobody lists its images" in unrecorded(seen, "The network N")
    assert unlisted([LISTED]) is None and unrecorded(seen_by_weights(FoundationWeights()), "N") is None
