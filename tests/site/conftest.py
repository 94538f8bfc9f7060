from tests.reports.conftest import browser  # noqa: F401 - a fixture
