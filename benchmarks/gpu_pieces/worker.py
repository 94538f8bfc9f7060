"""The process of one measurement: call its function, and write what it returns as JSON."""

import importlib
import json
import os
import sys
from pathlib import Path


def main() -> None:
    request = json.loads(sys.argv[1])
    module, _, name = request["function"].partition(":")
    values = getattr(importlib.import_module(module), name)(request["settings"], Path(request["scratch"]))
    answer = Path(request["answer"])
    partial = answer.with_suffix(".partial")
    partial.write_text(json.dumps(values, allow_nan=False), encoding="utf-8")
    os.replace(partial, answer)


if __name__ == "__main__":
    main()
