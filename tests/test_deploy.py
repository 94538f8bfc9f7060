"""Files of deploy/: they are valid, name what exists, and give the service no more rights than it needs."""

import json
import re
import shutil
import subprocess
import sys
import tomllib

import pytest

from tests.conftest import REPOSITORY
from usvit.node.config.file import load_node_config

DEPLOY = REPOSITORY / "deploy"


def test_the_example_configuration_is_valid_and_sends_nothing_yet():
    config = load_node_config(DEPLOY / "node.yaml")
    assert config.send.dry_run and config.receive.host == "127.0.0.1"
    assert [rule.leave_alone for rule in config.rules] == [True, False]


def test_the_configuration_of_the_how_to_is_valid(tmp_path):
    page = (REPOSITORY / "docs" / "how-to" / "node.md").read_text()
    (example,) = re.findall(r"   ```yaml\n(   folder:.*?)   ```", page, re.DOTALL)
    path = tmp_path / "node.yaml"
    path.write_text(re.sub("^   ", "", example, flags=re.MULTILINE))
    assert load_node_config(path).peers["orthanc"].storage_commitment
    for block in re.findall(r" *```json\n(.*?) *```", page, re.DOTALL):
        json.loads(block)


def test_the_unit_of_systemd_is_valid_and_hardened(tmp_path):
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "usvit-node.service"
    unit.write_text((DEPLOY / "usvit-node.service").read_text().replace("/opt/usvit/bin/usvit", sys.executable))
    done = subprocess.run([tool, "verify", "--man=no", str(unit)], capture_output=True, text=True)
    assert done.stderr + done.stdout == ""
    done = subprocess.run([tool, "security", "--offline=true", "--threshold=25", "--no-pager", str(unit)], text=True)
    assert done.returncode == 0  # an exposure of at most 2.5 of 10


@pytest.mark.parametrize("name", ["Containerfile", "mercure.Containerfile", "xnat.Containerfile"])
def test_images_copy_what_exists(name):
    text = (DEPLOY / name).read_text()
    for line in re.findall(r"^COPY (?!--from)(.*)", text, re.MULTILINE):
        *sources, _ = line.split()
        for source in sources:
            assert source == "deploy/model" or (REPOSITORY / source).exists(), source


def test_the_image_is_built_from_all_folders_of_the_wheel():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    lines = re.findall(r"^COPY (?!--from)(.*) /src/\S*$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    copied = {source for line in lines for source in line.split()}
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {*wheel["packages"], *wheel["force-include"]} <= copied


def test_the_image_runs_as_a_user_without_rights_and_writes_to_its_volume_only():
    text = (DEPLOY / "Containerfile").read_text()
    last = text.rpartition("\nFROM ")[2]
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert re.search(r"^VOLUME /data$", last, re.MULTILINE) and "PYTHONDONTWRITEBYTECODE=1" in last
    assert json.loads(re.search(r"^CMD (\[.*\])$", last, re.MULTILINE)[1]) == ["node", "serve", "/data/node.yaml"]
    assert "STOPSIGNAL SIGTERM" in last and "healthz" in last
