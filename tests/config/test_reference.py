"""The page of the settings is made from the fields of the configurations."""

import pytest

from tests.conftest import REPOSITORY
from tests.settings_tables import check_page, table
from usvit.config import RunConfig
from usvit.config.listing import list_settings
from usvit.config.run import SPEED_ONLY
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.config.test import TestConfig
from usvit.upstream.config.transfer import TransferConfig

PAGE = REPOSITORY / "docs" / "reference" / "configuration.md"
INTRODUCTION = """# Configuration

The configuration of a run comes from three layers: a recipe (`configs/finetune/*.yaml`, or your own YAML file with
`--recipe FILE`), then the options of the command line, then `--set key=value`. Later layers override earlier ones. The
complete configuration, including defaults, is stored in `run.json`. An unknown key is an error that names the most
similar known key. `tests/config/test_reference.py` makes this page from the fields in `usvit/config` and
`usvit/upstream/config`.

More about some of them: [what to train and how to choose an optimiser](../how-to/fine-tune.md),
[GPUs](../how-to/gpu.md), [weight decay](../explanation/weight-decay.md),
[augmentation](../explanation/ultrasound-safety.md), [images that were seen](../explanation/leakage.md).

"""
PRETRAIN = """
## Upstream: `usvit pretrain`

`usvit pretrain` has the keys above, except `input.*`, `allow_contaminated` and `folds_at_once`, and those of this
table, of which some have another default here. Its recipes are in `configs/pretrain/` ([recipes.md](recipes.md)).

"""
TRANSFER = """
## Transfer: `usvit transfer`

`usvit transfer` has the keys of `usvit pretrain` and those of this table. Its recipes are in `configs/transfer/`.

"""
TEST = """
## Test: `usvit test`

`usvit test` trains nothing, so it has only these keys, `data.*` (for `--dataset`) and `model.vit.*` (for weights
without metadata).

"""


@pytest.mark.parametrize("config", [RunConfig, PretrainConfig, TransferConfig, TestConfig])
def test_every_setting_has_a_meaning(config):
    assert [key for key, (_, meaning) in list_settings(config).items() if not meaning] == []


def test_the_page_of_the_settings_is_that_of_the_source():
    run, pretrain, transfer, test = map(list_settings, (RunConfig, PretrainConfig, TransferConfig, TestConfig))
    speed = ", ".join(f"`{key}`" for key in SPEED_ONLY)
    fresh = (
        f"{INTRODUCTION}{table(run)}\n"
        f"A run may be resumed with other values of these, which affect only its speed, but of no others: {speed}.\n"
        + PRETRAIN
        + table({key: row for key, row in pretrain.items() if run.get(key) != row})
        + TRANSFER
        + table({key: row for key, row in transfer.items() if pretrain.get(key) != row})
        + TEST
        + table({key: row for key, row in test.items() if not key.startswith(("data.", "model.vit."))})
    )
    check_page(PAGE, fresh, "tests/config/test_reference.py")
