"""Two keys that say one thing: the later one counts."""

import pytest

from usvit.config import RunConfig, build, merge
from usvit.errors import UsvitError
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.config.transfer import TransferConfig


@pytest.mark.parametrize(
    ("base", "over", "result"),
    [
        ({"val": "val", "split": "train"}, {"val_share": 0.1}, {"val_share": 0.1, "split": "train"}),
        ({"val_share": 0.2}, {"val": "test"}, {"val": "test"}),
        ({"val": "val"}, {"val_share": 0.0}, {"val": "val", "val_share": 0.0}),  # keeps nothing back
        ({"val_share": 0.2}, {"val": None}, {"val": None, "val_share": 0.2}),
        ({"val": "val"}, {"val": None, "val_share": 0.1}, {"val": None, "val_share": 0.1}),
        ({"epochs": 300}, {"steps": 10}, {"steps": 10}),
        ({"steps": 10}, {"epochs": 300}, {"epochs": 300}),
        ({"epochs": 300}, {"steps": None}, {"epochs": 300, "steps": None}),
    ],
)
def test_the_later_of_two_ways_to_say_one_thing_counts(base, over, result):
    assert merge({"section": base}, {"section": over}) == {"section": result}


def test_a_recipes_validation_part_gives_way_to_a_share():
    for schema in (PretrainConfig, TransferConfig):
        source = build(schema, {"source": {"name": "fractals", "val": "val"}}, {"source": {"val_share": 0.3}}).source
        assert (source.val, source.val_share) == (None, 0.3)
        source = build(schema, {"source": {"name": "fractals", "val_share": 0.3}}, {"source": {"val": "val"}}).source
        assert (source.val, source.val_share) == ("val", 0.0)


@pytest.mark.parametrize(("schema", "length"), [(RunConfig, (250, None)), (PretrainConfig, (None, 300))])
def test_another_setting_of_the_training_leaves_its_length(schema, length):
    train = build(schema, {"train": {"batch_size": 8}}).train
    assert (train.steps, train.epochs) == length
    train = build(schema, {"train": {"epochs": 2}}).train
    assert (train.steps, train.epochs) == (None, 2)


def test_a_dotted_key_in_a_file_is_said_to_be_a_section():
    with pytest.raises(UsvitError, match=r"'train\.steps' contains a dot: .* a section, train: {steps: \.\.\.}"):
        build(RunConfig, {"train.steps": 3})
