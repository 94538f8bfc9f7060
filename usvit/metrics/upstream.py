"""Runs of other kinds: first weights, which have no test on ultrasound images behind them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from usvit.errors import UsvitError


def refuse_upstream(run: Path, record: Mapping[str, Any], what: str, *, but: tuple[str, ...] = ()) -> None:
    """Refuse a run of ``usvit pretrain`` or ``usvit transfer`` where a tested classifier is needed.

    Args:
        run: its folder, as the user named it.
        record: run.json.
        what: what cannot be made of it, as in "A report".
        but: kinds that will do.

    Raises:
        UsvitError: saying where its own figures are.
    """
    kind = record.get("kind")
    if kind in but or kind not in ("pretrain", "transfer"):
        return
    own = "pretrain.json and fold-0/history.csv" if kind == "pretrain" else "transfer.json and results.csv"
    evaluated = " 'usvit evaluate' and 'usvit compare' read its predictions." if kind == "transfer" else ""
    raise UsvitError(
        f"{run} is a run of usvit {kind}. {what} needs a run of usvit cv or train: begin one from it with "
        f"--weights {run}. Its own page is report.html, its figures are in {own}.{evaluated}"
    )
