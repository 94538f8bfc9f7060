"""``python -m usvit.bench.worker``: a process for one measurement. JSON comes in on stdin and goes out on stdout."""

import dataclasses
import json
import os
import sys
from typing import Any

from usvit.bench.case import Case
from usvit.errors import UsvitError


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do what is asked: ``{"measure": case}`` or ``{"probe": [case, ...]}``; a user's mistake is ``{"error": ...}``."""
    try:
        if "probe" in request:
            from usvit.bench.probe import probe

            return dataclasses.asdict(probe([Case.from_json(case) for case in request["probe"]]))
        from usvit.bench.measure import measure

        return {"rows": [dataclasses.asdict(row) for row in measure(Case.from_json(request["measure"]))]}
    except UsvitError as error:
        return {"error": str(error)}


def main() -> None:
    request = json.load(sys.stdin)
    # Libraries may print: stdout is for the answer alone.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with out:
        json.dump(answer(request), out, allow_nan=False)


if __name__ == "__main__":
    main()
