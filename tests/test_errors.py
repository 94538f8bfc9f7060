"""Errors in the words of the command line, and in those of Python."""

import pickle

import pytest

from usvit.errors import COMMAND_LINE, LeakageError, UsvitError


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("Choose another --out.", "Choose another 'out'."),
        ("--data-root DIR is not a folder.", "'data_root' DIR is not a folder."),
        ("Pass --set train.optim.lr=0.1, or --seed 1.", "Pass train__optim__lr=0.1, or 'seed' 1."),
        ("Give changes with --set.", "Give changes with 'overrides'."),
        ("Choose folds that agree (--fold).", "Choose folds that agree ('folds')."),
        ("Run usvit data split --dataset busi --out x.csv, then pass --folds.",
         "Run usvit data split --dataset busi --out x.csv, then pass 'folds'."),
        ("'usvit test --list-sources' lists them: --source.", "'usvit test --list-sources' lists them: 'source'."),
        ("Make it with torch --nproc-per-node 2", "Make it with torch 'nproc_per_node' 2"),
        ("a--b stays, a -- b too", "a--b stays, a -- b too"),
    ],
)  # fmt: skip
def test_options_become_arguments_for_a_python_user(monkeypatch, text, python):
    assert str(UsvitError(text)) == text  # the tests are the command line
    monkeypatch.delenv(COMMAND_LINE)
    assert str(LeakageError(text)) == python
    assert str(pickle.loads(pickle.dumps(UsvitError(text)))) == python
