"""The process of one measurement: it reads JSON from stdin and writes JSON to stdout."""

import json
import os
import sys

from usvit.errors import UsvitError
from usvit.plain_data import Json
from usvit.processes import exit_with_parent
from usvit.upstream.bench.case import BenchmarkCase


def answer(request: Json) -> Json:
    """Answer ``{"measure": case}`` or ``{"probe": [case, ...]}``; a user's error becomes ``{"error": ...}``."""
    try:
        if "probe" in request:
            from usvit.upstream.bench.preflight import probe

            return probe([BenchmarkCase.from_json(case) for case in request["probe"]]).content()
        from usvit.upstream.bench.measure import measure

        return {"rows": [row.content() for row in measure(BenchmarkCase.from_json(request["measure"]))]}
    except UsvitError as error:
        return {"error": str(error)}


def main() -> None:
    exit_with_parent()
    request = json.load(sys.stdin)
    # Libraries may print to stdout, which must contain only the answer.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with out:
        json.dump(answer(request), out, allow_nan=False)


if __name__ == "__main__":
    main()
