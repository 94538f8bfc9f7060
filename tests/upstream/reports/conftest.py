from tests.reports.conftest import browser, visit  # noqa: F401 - fixtures
