from tests.explaining.conftest import make_run, phantom_manifest  # noqa: F401  (fixtures)
