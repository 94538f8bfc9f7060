"""Files that change places between two runs of one job: no row, product or link of another patient's file."""

import os
import signal
import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.data.conftest import save, speckle, write_dicom
from tests.dying import die, kill
from tests.processes import command_line
from tests.processes import run as run_process
from tests.scoring.dicom_out.product_cases import KNOWN, SETTINGS, person, swap
from usvit.pseudonyms import Pseudonyms
from usvit.scoring.items import Frame, ScoringItem
from usvit.scoring.reading.item_reader import read_item

pytestmark = pytest.mark.slow


@pytest.fixture
def job(usvit, run, tmp_path):
    """Two patients of different images, scored by the command; ``call`` gives it again."""
    folder = tmp_path / "in"
    items = [person(folder, "ann", 1), person(folder, "eve", 2)]
    save(speckle(5, 96, 128), folder / "plain.png")
    arguments = ["score", "--model", run, "--input", folder, "--out", tmp_path / "scores", "--key", tmp_path / "key"]
    arguments += ["--device", "cpu", "--precision", "fp32", "--workers", 1]

    def call(*more):
        return usvit(*arguments, *more)

    call.arguments, call.paths, call.out = arguments, [Path(item.location) for item in items], tmp_path / "scores"
    call.ids = [Pseudonyms.of_key(tmp_path / "key").item(item.name) for item in items]
    return call


def die_before_products(*arguments) -> None:
    from usvit.scoring import job

    os.setsid()
    job.make_products = lambda *_, **__: die()
    command_line(*arguments)


def killed_before_products(job, *more) -> None:
    """The command with all scored and no product made; SIGKILL."""
    ended = run_process(die_before_products, *map(str, [*job.arguments, *more]))
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert sqlite3.connect(job.out / "journal.sqlite").execute("SELECT count(*) FROM rows").fetchone() == (3,)


def test_files_that_swap_places_between_a_kill_and_the_products_have_no_report(job):
    killed_before_products(job, "--sr", "--keep-ids")
    swap(*job.paths)
    said = job("--sr", "--keep-ids")
    assert said.code == 3
    products = pd.read_csv(job.out / "products.csv").set_index("item_id")
    assert set(products.loc[job.ids].error) == {"changed_since_scoring"}
    assert "2  changed_since_scoring" in said.out
    assert not list(job.out.rglob("*.dcm"))


def test_a_link_table_leads_to_no_file_that_was_not_scored(job, tmp_path):
    assert job().code == 0
    swap(*job.paths)
    said = job("--link", tmp_path / "link.csv")
    assert said.code == 3 and "2 files are left out of the link table" in said.err
    linked = pd.read_csv(tmp_path / "link.csv")
    assert list(linked.name) == ["plain.png"]
    (tmp_path / "link.csv").unlink()
    swap(*job.paths)
    assert job("--link", tmp_path / "link.csv").code == 0
    assert set(pd.read_csv(tmp_path / "link.csv").item_id) > set(job.ids)


def test_the_rest_of_a_loop_is_not_scored_from_another_file(job, tmp_path):
    """Killed within a loop, whose file is another when the job goes on: no row of the other stands under its id."""
    loop, other = job.paths
    write_dicom(loop, np.stack([speckle(10 + k, 96, 128) for k in range(40)]), **KNOWN)
    write_dicom(other, np.stack([speckle(90 + k, 96, 128) for k in range(40)]), **KNOWN)
    whole = [
        one.pixel_sha256 for one in read_item(ScoringItem("ann.dcm", str(loop)), SETTINGS) if isinstance(one, Frame)
    ]
    kill([*map(str, job.arguments), "--batch-size", "16"], 2, "after")
    swap(loop, other)
    said = job("--batch-size", "16")
    assert said.code == 3
    scores = pd.read_csv(job.out / "scores.csv").set_index("item_id")
    mine = scores.loc[[job.ids[0]]]
    assert 0 < len(mine) < 40 and set(mine.pixel_sha256) <= set(whole) and mine.file_sha256.nunique() == 1
    failures = pd.read_csv(job.out / "failures.csv")
    assert list(failures[failures.item_id == job.ids[0]].code) == ["changed_since_scoring"]
