"""The configuration of a node: what is accepted, and one clear sentence for each mistake."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.settings_tables import check_page, table
from usvit.config.listing import list_settings
from usvit.errors import UsvitError
from usvit.node.config import settings as node
from usvit.node.config.file import load_node_config
from usvit.node.config.settings import RuleConditions, covers

BASE: dict[str, Any] = {
    "folder": "state",
    "receive": {"allow": [{"ae_title": "SCANNER", "address": "10.0.0.0/8"}]},
    "models": {"main": {"path": "runs/x"}},
    "rules": [{"name": "all", "model": "main"}],
}


def load(tmp_path: Path, **changed: Any):
    (tmp_path / "node.yaml").write_text(yaml.safe_dump({**BASE, **changed}))
    return load_node_config(tmp_path / "node.yaml")


def test_relative_paths_are_relative_to_the_file_and_a_dumped_configuration_reads_the_same(tmp_path):
    config = load(tmp_path, key="keys/own.key")
    assert config.folder == tmp_path / "state"
    assert config.key_path == tmp_path / "keys" / "own.key"
    assert config.models["main"].path == tmp_path / "runs" / "x"
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "config.json").write_text(config.model_dump_json())
    assert load_node_config(tmp_path / "again" / "config.json") == config


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"receiv": {}}, r"Unknown setting 'receiv'\. Nearest: receive"),
        ({"receive": {"allow": "any", "ae_titel": "X"}}, r"'receive\.ae_titel'\. Nearest: receive\.ae_title"),
        ({"models": {"main": {"pth": "x"}}}, r"Unknown setting 'models\.pth'\. Nearest: models\.path"),
        ({"rules": [{"name": "a", "model": "main", "when": {"modalty": "US"}}]}, r"Nearest: rules\.when\.modality"),
        ({"receive": {"allow": "any", "ae_title": "SEVENTEEN_LETTERS"}}, "1 to 16 characters, and .* has 17"),
        ({"receive": {"allow": "any", "ae_title": "A\\B"}}, "without a backslash"),
        ({"receive": {"allow": "any", "ae_title": " "}}, "1 to 16 characters"),
        ({"receive": {}}, r"receive\.allow is missing"),
        ({"receive": {"allow": []}}, r"receive\.allow"),
        ({"receive": {"allow": [{}]}}, "needs an ae_title, an address, or both"),
        ({"receive": {"allow": [{"address": "10.0.0"}]}}, "not an IP address or a network"),
        ({"receive": {"allow": "any", "port": 70000}}, r"receive\.port cannot be used: .* 65535"),
        ({"receive": {"allow": "any", "tls": {"certificate": "c.pem"}}}, "give both"),
        ({"rules": [{"name": "a", "model": "other"}]}, r"the model 'other', which is not among models \(main\)"),
        ({"rules": [{"name": "a", "model": "main", "send_to": ["pacs"]}]}, "sends to 'pacs', which is not among peers"),
        ({"rules": [{"name": "a"}]}, "either 'model' or 'leave_alone: true'"),
        ({"rules": [{"name": "a", "model": "main"}, {"name": "a", "model": "main"}]}, "two rules are named 'a'"),
        (
            {"rules": [{"name": "a", "model": "main"}, {"name": "b", "leave_alone": True, "when": {"modality": "US"}}]},
            "rule 'b' can never match, .* earlier rule 'a'",
        ),
        ({"peers": {"pacs": {"host": "x"}}}, "needs ae_title, host and port, or dicomweb"),
        ({"peers": {"pacs": {"dicomweb": "https://x", "ae_title": "A"}}}, "either an AE .* or dicomweb"),
        ({"status": {"port": 11112}}, r"receive\.port and status\.port are both 11112"),
        ({"folder": None}, "folder"),
    ],
)
def test_a_mistake_is_told_in_one_paragraph_that_names_file_and_setting(tmp_path, changed, said):
    with pytest.raises(UsvitError, match=said) as caught:
        load(tmp_path, **changed)
    assert str(tmp_path / "node.yaml") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_missing_or_no_mapping_is_an_error(tmp_path):
    with pytest.raises(UsvitError, match="cannot be read"):
        load_node_config(tmp_path / "absent.yaml")
    (tmp_path / "list.yaml").write_text("- a")
    with pytest.raises(UsvitError, match="must be a mapping"):
        load_node_config(tmp_path / "list.yaml")


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ({}, {"modality": "US"}, True),
        ({"modality": "US"}, {}, False),
        ({"modality": "*"}, {}, True),
        ({"modality": "us"}, {"modality": "US"}, True),
        ({"description": "*breast*"}, {"description": "*left breast*"}, True),
        ({"description": "*breast*"}, {"description": "*"}, False),
        ({"description": "a?c"}, {"description": "abc"}, True),
        ({"description": "a?c"}, {"description": "a*c"}, False),
        ({"description": "a*c"}, {"description": "a?c"}, True),
        ({"modality": "US", "body_part": "BREAST"}, {"modality": "US"}, False),
        ({"modality": "US"}, {"modality": "US", "body_part": "BREAST"}, True),
    ],
)
def test_a_rule_covers_another_only_if_it_surely_matches_whatever_that_one_matches(wide, narrow, expected):
    assert covers(RuleConditions(**wide), RuleConditions(**narrow)) is expected


PAGE = REPOSITORY / "docs" / "reference" / "node-configuration.md"
INTRODUCTION = """# Configuration of a node

The settings of `usvit node`, a YAML file ([how to run a node](../how-to/node.md)). Relative paths are relative to the
folder of the file. An unknown key is an error that names the most similar known key.
`tests/node/config/test_settings.py` makes this page from `usvit/node/config/settings.py`.

"""
PLACES = {"receive.allow": "[]", "folders": "[]", "rules": "[]", "models": "NAME", "peers": "NAME"}


def test_the_page_of_the_settings_is_that_of_the_source():
    check_page(PAGE, INTRODUCTION + table(list_settings(node.NodeConfig, PLACES)), "tests/node/config/test_settings.py")
