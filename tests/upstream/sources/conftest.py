"""What shards leave in the cache is the test's own."""

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("USVIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "shards"
