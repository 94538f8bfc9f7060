import os
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.data.conftest import save, speckle, write_b, write_busi
from usvit.data.datasets import locate
from usvit.data.datasets.cards import load_card
from usvit.data.datasets.locate import open_dataset
from usvit.data.datasets.manifest import build_manifest
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.errors import UsvitError
from usvit.progress import NoProgress


def root_of(dataset: str, given: dict[str, Path]) -> Path:
    return open_dataset(load_card(dataset), given, NoProgress())[0]


def test_root_is_the_data_set_s_own_folder_or_one_that_holds_it(busi):
    assert root_of("busi", {"": busi}) == busi
    assert root_of("busi", {"": busi.parent}) == busi


@pytest.mark.slow
def test_a_root_for_one_data_set_goes_before_the_one_for_all(tmp_path, busi):
    other = write_b(tmp_path / "elsewhere" / "b")
    given = {"": busi.parent, "b": other}
    assert root_of("busi", given) == busi
    assert root_of("b", given) == other


def test_environment_serves_where_no_root_is_given_and_only_there(monkeypatch, tmp_path, busi):
    monkeypatch.setenv("USVIT_DATA", str(busi.parent))
    assert root_of("busi", {}) == busi
    own = write_busi(tmp_path / "own")
    assert root_of("busi", {"busi": own}) == own


def test_without_any_root_the_error_says_how_to_get_the_data():
    with pytest.raises(UsvitError, match=r"The folder of BUSI.* is not known.*--data-root.*USVIT_DATA(.|\n)*Download"):
        root_of("busi", {})


@pytest.mark.parametrize(("kind", "says"), [("missing", "does not exist"), ("file", "is not a folder")])
def test_root_that_is_no_folder_is_named(tmp_path, kind, says):
    path = tmp_path / "data"
    if kind == "file":
        path.write_text("")
    with pytest.raises(UsvitError, match=rf"{path} {says}.*--data-root"):
        root_of("busi", {"": path})


def test_folder_of_another_layout_shows_what_is_there_and_what_was_expected(tmp_path):
    (tmp_path / "scans").mkdir()
    with pytest.raises(UsvitError) as caught:
        root_of("b", {"": tmp_path})
    text = str(caught.value)
    assert "Found: scans" in text
    assert "original/000001.png" in text
    assert "DatasetB.xlsx" in text


def test_a_folder_that_holds_nothing_says_so(tmp_path):
    with pytest.raises(UsvitError, match="Found: no folders"):
        root_of("busi", {"": tmp_path})
    for label in ("benign", "malignant", "normal"):
        (tmp_path / label).mkdir()
    with pytest.raises(UsvitError, match="it contains no images"):
        root_of("busi", {"": tmp_path})


@pytest.mark.slow
@pytest.mark.parametrize("column", ["path", "mask_path"])
@pytest.mark.parametrize("absolute", [True, False])
def test_path_that_climbs_out_of_the_folder_is_refused(tmp_path, small_phantom, column, absolute):
    phantom = shutil.copytree(small_phantom, tmp_path / "phantom")
    outside = save(speckle(1, 64, 64), tmp_path / "secret.png")
    table = pd.read_csv(phantom / "phantom.csv")
    table.loc[5, column] = str(outside) if absolute else "benign/../../secret.png"
    table.to_csv(phantom / "phantom.csv", index=False)
    with pytest.raises(UsvitError, match=r"secret.png of the data set phantom leads out of its folder"):
        root_of("phantom", {"phantom": phantom})


def test_images_may_be_links_to_where_they_are_stored(tmp_path, busi):
    linked = tmp_path / "linked"
    for path in sorted(busi.rglob("*.png")):
        link = linked / path.relative_to(busi)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
    _, records = open_dataset(load_card("busi"), {"": linked}, NoProgress())
    assert len(records) == 26


def test_class_that_the_card_does_not_know_is_refused(tmp_path, small_phantom):
    phantom = shutil.copytree(small_phantom, tmp_path / "phantom")
    text = (phantom / "phantom.csv").read_text()
    (phantom / "phantom.csv").write_text(text.replace(",normal,", ",healthy,"))
    with pytest.raises(UsvitError, match="has the class 'healthy', which is not one of"):
        root_of("phantom", {"phantom": phantom})


def test_unknown_data_set_suggests_the_nearest():
    with pytest.raises(UsvitError, match=r"Unknown data set 'busy'. Nearest: busi"):
        root_of("busy", {})


@pytest.fixture
def small_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PhantomSpec:
    """The embedded phantom in small, in a cache of its own."""
    small = PhantomSpec(n=9, size=64)
    monkeypatch.setattr(locate.phantom, "PhantomSpec", lambda: small)
    monkeypatch.setenv("USVIT_CACHE", str(tmp_path / "cache"))
    return small


@pytest.mark.slow
def test_phantom_is_made_in_the_cache_once_without_a_root(tmp_path, small_default):
    folder = root_of("phantom", {})
    assert folder == tmp_path / "cache" / "phantom" / small_default.key
    made = (folder / "phantom.csv").stat().st_mtime_ns
    assert root_of("phantom", {}) == folder
    assert (folder / "phantom.csv").stat().st_mtime_ns == made


@pytest.mark.slow
def test_embedded_phantom_is_the_one_that_its_spec_writes(tmp_path, small_default):
    written = write_phantom(small_default, tmp_path / "other")
    embedded = root_of("phantom", {})
    for path in written.rglob("*.*"):
        assert (embedded / path.relative_to(written)).read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_phantom_comes_from_the_cache_where_the_environment_s_folder_has_none(
    monkeypatch, busi, small_phantom, small_default
):
    monkeypatch.setenv("USVIT_DATA", str(busi.parent))
    assert root_of("phantom", {}).name == small_default.key
    shutil.copytree(small_phantom, busi.parent / "mine")
    assert root_of("phantom", {}) == busi.parent / "mine"


@pytest.mark.parametrize("key", ["", "phantom"])
def test_a_root_that_was_asked_for_is_not_replaced_by_the_cache(tmp_path, small_default, key):
    with pytest.raises(UsvitError, match="it does not have the expected layout"):
        root_of("phantom", {key: tmp_path})
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow
def test_default_phantom_needs_no_network_and_has_240_images(monkeypatch, embedded_phantom):
    monkeypatch.setenv("USVIT_CACHE", str(embedded_phantom))
    manifest = build_manifest("phantom", {}, NoProgress())
    assert len(manifest.usable) == 240
    assert manifest.roots["phantom"].is_relative_to(embedded_phantom)
    assert manifest.usable.group_id.str.startswith("patient:phantom:").all()


@pytest.mark.skipif(not hasattr(os, "fork") or os.geteuid() != 0, reason="becoming another user needs root on POSIX")
def test_folder_without_permission_is_an_error_and_no_traceback(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o700)
    child = os.fork()
    if child == 0:  # as nobody, who may not look into root's folder
        os.setuid(65534)
        try:
            root_of("busi", {"": tmp_path / "locked"})
        except UsvitError as error:
            os._exit(0 if "no permission for" in str(error) else 1)
        except BaseException:
            os._exit(2)
        os._exit(3)
    assert os.waitpid(child, 0)[1] == 0
