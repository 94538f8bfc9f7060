"""The predictions tables of the evaluation's tests, for the statistics below them."""

from tests.evaluation.conftest import make_table, study

__all__ = ["make_table", "study"]
