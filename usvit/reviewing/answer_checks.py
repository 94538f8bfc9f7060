"""Which values are answers to a question: what a page sends is not trusted."""

from collections.abc import Mapping, Sequence
from typing import Any

from usvit.errors import UsvitError
from usvit.reviewing.settings import QuestionSettings

_MOST_TEXT = 2000
_LARGEST = 1e15


def check_answer(question: QuestionSettings, value: Any, n_frames: Sequence[int]) -> None:
    """Refuse what is not an answer to a question.

    Args:
        question: the question.
        value: what the page sent, parsed from JSON.
        n_frames: number of frames of each image of the case.

    Raises:
        UsvitError: it is none of the answers.
    """
    words = {one.value for one in question.choices}
    match question.kind:
        case "choice" if question.multiple:
            fits = isinstance(value, list) and all(isinstance(one, str) and one in words for one in value)
            fits = fits and len({*value}) == len(value)
        case "choice" | "birads":
            fits = isinstance(value, str) and value in words
        case "scale":
            fits = _is_number(value) and question.low <= value <= question.high
        case "text":
            fits = isinstance(value, str) and len(value) <= _MOST_TEXT
        case "point" | "box":
            fits = _is_place(value, question.kind, n_frames)
    if not fits:
        raise UsvitError(f"This is not an answer to the question '{question.label or question.name}'.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST


def _is_place(value: object, kind: str, n_frames: Sequence[int]) -> bool:
    keys = {"image", "frame", "x", "y"} | ({"width", "height"} if kind == "box" else set())
    if not isinstance(value, Mapping) or {*value} != keys:
        return False
    if not all(_is_number(number) and number >= 0 for number in value.values()):
        return False
    image, frame = value["image"], value["frame"]
    return isinstance(image, int) and image < len(n_frames) and isinstance(frame, int) and frame < n_frames[image]
