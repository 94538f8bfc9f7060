"""The commands of the tutorial on transfer, on smaller phantoms."""

import re
import shlex

import pytest

from tests.conftest import REPOSITORY
from tests.models.weights.test_packages import needs_package

PAGE = REPOSITORY / "docs" / "tutorial" / "first-transfer.md"
SMALLER = {"phantom --out phantom": "phantom --out phantom --n 96 --size 64", "image_size=224": "image_size=64"}


@needs_package
@pytest.mark.slow
def test_the_commands_run_one_after_the_other(usvit, tmp_path, monkeypatch, without_report):
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8").partition("\n## On BUSI")[0].replace("\\\n", "")
    commands = [line for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    assert len(commands) == 8
    for command in commands:
        for text, smaller in SMALLER.items():
            command = command.replace(text, smaller)
        program, *words = shlex.split(command)
        answer = usvit(*words)
        assert program == "usvit" and answer.code == 0, answer.err
    assert (tmp_path / "runs" / "compare" / "compare.html").is_file()
