import json

import pandas as pd
import pytest

from usvit.data.seen import passport_beside, refuse_seen, seen_by
from usvit.errors import LeakageError, UsvitError

TABLE = pd.DataFrame(
    {"image_id": ["a", "b", "c", "d"], "group_id": ["g", "g", "h", "i"], "sha256": ["1", "2", "3", "4"]}
)


def test_what_was_seen_upstream_was_seen():
    assert seen_by({"seen_sha256": {"train": ["1"], "val": ["2"], "upstream": ["3"]}}) == {"1", "2", "3"}
    assert seen_by({}) == set()


def test_a_seen_image_is_named_by_its_group_with_all_its_images():
    with pytest.raises(LeakageError, match=r"The network N has seen images of 1 groups \(2 images\) .*: g\. Begin"):
        refuse_seen(TABLE, {"2", "9"}, "The network N")
    refuse_seen(TABLE, {"9"}, "The network N")
    refuse_seen(TABLE, set(), "The network N")


def test_a_passport_is_read_where_there_is_one(tmp_path):
    weights = tmp_path / "model.safetensors"
    assert passport_beside(weights) is None
    (tmp_path / "model.json").write_text(json.dumps({"architecture": "vit_b32"}))
    assert passport_beside(weights) == {"architecture": "vit_b32"}
    for damaged in ("{", "[]"):
        (tmp_path / "model.json").write_text(damaged)
        with pytest.raises(UsvitError, match=r"model.json of the weights is damaged"):
            passport_beside(weights)
