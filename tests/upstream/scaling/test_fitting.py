"""Fits of tables: what they say, and what they refuse."""

import json

import pandas as pd
import pytest

import usvit
from usvit.errors import UsvitError
from usvit.records import load_record
from usvit.upstream.records.scaling import ScalingRecord
from usvit.upstream.scaling import example_sweep


@pytest.fixture
def table(tmp_path):
    """Write a simulated sweep, changed by a function of its table."""

    def write(change=None, noise=0.001):
        path = tmp_path / "study.csv"
        path.write_text(example_sweep(noise))
        if change is not None:
            rows = pd.read_csv(path)
            change(rows).to_csv(path, index=False)
        return path

    return write


def test_the_paper_exponents_are_recovered_within_one_percent(table):
    fit = usvit.fit_shapes(table(noise=0.0), draws=50)
    found = {one.name: one.exponent.value for one in fit.record.dimensions}
    assert found == pytest.approx({"width": 0.22, "depth": 0.45, "mlp": 0.60}, rel=0.01)
    assert fit.unidentified == []
    assert load_record(fit.path, ScalingRecord) == fit.record


def test_the_bands_contain_the_fit_and_the_same_seed_gives_the_same_files(table, tmp_path):
    path = table()
    one, other = (usvit.fit_shapes(path, out=tmp_path / name, draws=50) for name in ("a", "b"))
    for dimension in one.record.dimensions:
        low, high = dimension.exponent.ci95
        assert low < dimension.exponent.value < high
    assert one.path.read_bytes() == other.path.read_bytes()
    assert one.page.read_bytes() == other.page.read_bytes()


def test_the_page_has_everything_in_itself(table):
    page = usvit.fit_shapes(table(), draws=50).page.read_text()
    assert page.count("<svg") >= 2 and "<script" not in page and "http://" not in page.replace("http://www.w3.org", "")


def test_a_sweep_of_one_dimension_is_fitted(table):
    fit = usvit.fit_shapes(table(lambda rows: rows[(rows.depth == 40) & (rows.mlp == 6144)]), draws=50)
    assert [one.name for one in fit.record.dimensions] == ["width"]
    assert fit.record.constant == {"depth": 40.0, "mlp": 6144.0}
    assert fit.record.dimensions[0].exponent.value == pytest.approx(0.22, rel=0.05)


def test_columns_of_other_names_are_read(table):
    path = table(lambda rows: rows.rename(columns={"loss": "error", "gflops": "compute"}))
    fit = usvit.fit_shapes(path, loss="error", compute="compute", draws=50)
    assert len(fit.record.points) == 90


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows[rows.gflops == 1e11], ["1 compute budget", "needs 3"]),
        (lambda rows: rows[rows.gflops >= 3e11], ["2 compute budgets", "data exponent"]),
        (lambda rows: rows.assign(loss=rows.loss.where(rows.index != 5)), ["1 of 90", "line 7", "--drop-missing"]),
        (lambda rows: rows.assign(loss=rows.loss.where(rows.index != 5, "abc")), ["line 7", "'abc' is not a number"]),
        (lambda rows: rows.assign(width=rows.width.where(rows.index != 5, -1)), ["line 7", "width is '-1'", "above 0"]),
        (lambda rows: rows.drop(columns="depth"), ["column", "depth"]),
        (lambda rows: rows.head(0), ["0 rows"]),
        (lambda rows: rows[rows.width.isin([200, 1968])], ["the width has only the values 200, 1968"]),
        (lambda rows: rows.assign(width=5, depth=5, mlp=5), ["no dimension of the shape varies"]),
    ],
)
def test_a_table_that_cannot_be_fitted_is_refused(table, change, words):
    with pytest.raises(UsvitError) as error:
        usvit.fit_shapes(table(change), draws=50)
    assert not [word for word in words if word not in str(error.value)], error.value


def test_a_sweep_with_too_few_networks_is_refused(table):
    kept = [0, 1, 2, 7, 8, 9, 13, 14, 15, 20, 22, 26, 38, 40, 44]
    with pytest.raises(UsvitError, match="15 parameters"):
        usvit.fit_shapes(table(lambda rows: rows.iloc[kept]), draws=50)


def test_missing_losses_can_be_left_out(table):
    path = table(lambda rows: rows.assign(loss=rows.loss.where(rows.index % 9 != 5)))
    fit = usvit.fit_shapes(path, drop_missing=True, draws=50)
    assert len(fit.record.points) == 80
    assert "Left out, because they have no loss: 10 of the trainings." in fit.record.warnings


def test_a_cell_that_says_it_is_missing_is_missing(table):
    path = table(lambda rows: rows.assign(loss=rows.loss.where(rows.index != 5, "n/a")))
    with pytest.raises(UsvitError, match="--drop-missing"):
        usvit.fit_shapes(path, draws=50)
    assert len(usvit.fit_shapes(path, drop_missing=True, draws=50).record.points) == 89


def test_a_dimension_that_varies_without_being_fitted_is_named(table):
    fit = usvit.fit_shapes(table(lambda rows: rows[rows.mlp > 2000]), dimensions=("width", "depth"), draws=50)
    assert any("counts as error: the MLP width" in one for one in fit.record.warnings)


@pytest.mark.parametrize("dimensions", [(), ("width", "width")])
def test_each_dimension_is_named_once(table, dimensions):
    with pytest.raises(UsvitError, match="each column once"):
        usvit.fit_shapes(table(), dimensions=dimensions, draws=50)


def test_an_exponent_that_the_data_do_not_identify_has_no_value(table):
    """With much noise, only the reason is given, and the files are written all the same."""
    fit = usvit.fit_shapes(table(noise=0.2), draws=50)
    assert fit.unidentified and fit.path.is_file() and fit.page.is_file()
    content = json.loads(fit.path.read_text())
    lost = [one for one in content["dimensions"] if one["exponent"]["value"] is None]
    assert lost and all(one["exponent"]["reason"] for one in lost)
    assert "not identified" in fit.page.read_text()


def test_draws_have_limits(table):
    with pytest.raises(UsvitError, match="draws is 10"):
        usvit.fit_shapes(table(), draws=10)
