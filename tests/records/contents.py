"""Valid contents of records, for tests that need a file with a few keys of their own."""

import json
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent / "fixtures"


def content(name: str, /, **changes: Any) -> dict[str, Any]:
    """Return the content of a fixture, such as ``run-pretrain``, with some keys replaced.

    It has no contamination, and a run has no hashes of files.
    """
    found: dict[str, Any] = json.loads((FIXTURES / f"{name}-1.0.json").read_text())
    for part in (found, found.get("data", {})) if name != "audit" else ():  # an audit has its own key of this name
        part.pop("contamination", None)
    if "config" in found:
        found["config"]["allow_contaminated"] = False
        found.pop("files", None)
    return found | changes


def network(**changes: Any) -> dict[str, Any]:
    """Return a ``model.json`` of a network without a detector that has seen nothing, with some keys replaced."""
    own = content("model", novelty=None, thresholds=[], temperature=None, **_SEEN)
    del own["weights_sha256"]  # the files beside it are those of the test
    return own | changes


_SEEN: dict[str, Any] = {
    "seen_sha256": {"train": [], "val": [], "upstream": []},
    "seen_copies": {"files": [], "gaps": []},
}
