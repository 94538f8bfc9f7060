"""A limit of file sizes (``ulimit -f``): the job stops, nothing is on record as impossible, and resuming makes it."""

import sys

import pandas as pd
import pydicom
import pytest

from tests.data.conftest import save, speckle
from tests.processes import command_line
from tests.processes import run as run_process
from tests.scoring.dicom_out.product_cases import person

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of processes")
LIMIT = 1_000_000
"""Bytes: more than the journal and the tables have, less than one capture."""


def limited(*arguments):
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))
    command_line(*arguments)


@pytest.mark.slow
def test_products_that_a_limit_of_file_sizes_stopped_are_made_when_the_job_goes_on(usvit, run, tmp_path):
    folder, out = tmp_path / "in", tmp_path / "scores"
    person(folder, "ann", 1, size=(700, 900))
    person(folder, "eve", 2, size=(700, 900))
    save(speckle(3, 700, 900), folder / "plain.png")
    arguments = ["score", "--model", run, "--input", folder, "--out", out, "--key", tmp_path / "key", "--sc", "--sr"]
    arguments += ["--keep-ids", "--device", "cpu", "--precision", "fp32", "--workers", 1]
    stopped = run_process(limited, *map(str, arguments))
    assert stopped.returncode == 2 and "ulimit -f" in stopped.stderr and "Traceback" not in stopped.stderr
    assert not list(out.rglob("*-sc.dcm")) and not list(out.rglob(".*partial*"))
    assert usvit(*arguments).code == 0
    captures = list(out.rglob("*-sc.dcm"))
    assert len(captures) == 3 and all(path.stat().st_size > LIMIT for path in captures)
    assert all(pydicom.dcmread(path).Rows for path in captures)
    products = pd.read_csv(out / "products.csv", keep_default_na=False)
    assert len(products) == 5 and set(products.error) == {""}
