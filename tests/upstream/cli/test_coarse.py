import pytest

from usvit.errors import UsvitError
from usvit.upstream.cli.coarse import coarse


def test_the_next_command_names_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("usvit.upstream.sources.wordnet.coarse_imagenet", lambda wordnet, out: 127)
    coarse(tmp_path / "data.noun", tmp_path / "my classes.csv")
    said = capsys.readouterr().out
    assert "1000 classes in 127 coarse ones" in said and f"source.coarse='{tmp_path}/my classes.csv'" in said


def test_a_missing_wordnet_is_named(tmp_path):
    with pytest.raises(UsvitError, match=r"data\.noun"):
        coarse(tmp_path / "data.noun", tmp_path / "out.csv")
