"""The parameters of a command, where they are not those of its function."""

import inspect
from collections.abc import Callable, Sequence


def with_parameters(call: Callable[..., None], parameters: Sequence[inspect.Parameter]) -> Callable[..., None]:
    """Give a function the parameters from which Typer builds the options of a command, as keywords."""
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    call.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    return call
