"""``usvit docs``, and that errors and help texts name its pages instead of files that a wheel does not have."""

import ast
import re

import pytest

from tests.conftest import REPOSITORY
from usvit.resources import docs_dir, documentation_page


def test_pages_are_listed_with_their_titles_and_shown(usvit):
    listed = usvit("docs")
    assert listed.code == 0 and "score                 How to score" in listed.out
    page = usvit("docs", "how-to/score.md")
    assert page.out.strip() == (docs_dir() / "how-to" / "score.md").read_text(encoding="utf-8").strip()


def test_an_unknown_page_is_answered_with_similar_names(usvit):
    answer = usvit("docs", "scores")
    assert answer.code == 2 and "Unknown page 'scores'. Nearest: score" in answer.err


def test_every_page_has_a_name_of_its_own():
    names = [page.stem for page in docs_dir().rglob("*.md")]
    assert len(set(names)) == len(names)


def texts_for_users(path):
    """Yield the strings of errors, and in the command line all strings and docstrings, of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if path.parent.name == "cli":
        roots = [tree]
    else:
        names = ("UsvitError", "LeakageError", "unknown", "BadImage")
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
        roots = [node for node in calls if ast.unparse(node.func).rpartition(".")[2] in names]
    for root in roots:
        for node in ast.walk(root):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_errors_and_help_name_pages_that_exist_and_no_file_of_the_checkout():
    named = set()
    for path in sorted((REPOSITORY / "usvit").rglob("*.py")):
        for text in texts_for_users(path):
            assert not re.search(r"docs/[a-z-]+/[a-z-]+\.md", text), f"{path}: {text}"
            named |= set(re.findall(r"'usvit docs ([a-z-]+)'", text))
    assert len(named) > 5
    for name in named:
        documentation_page(name)


@pytest.mark.parametrize("name", ["../pyproject", "", "score.md/../../x"])
def test_only_pages_are_read(usvit, name):
    assert usvit("docs", name).code == 2
