"""Style sheets and scripts that pages contain."""

from importlib.resources import files


def static_text(name: str) -> str:
    """Return the text of a style sheet or script."""
    return (files("usvit.reports") / "templates" / name).read_text(encoding="utf-8")
