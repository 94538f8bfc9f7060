"""Contents of files as dictionaries, from the functions that return records."""

from typing import Any

import pandas as pd

from usvit.evaluation import metrics_record


def summarise(table: pd.DataFrame, **settings: Any) -> dict[str, Any]:
    """Return the content of metrics.json."""
    return metrics_record.summarise(table, **settings).content()
