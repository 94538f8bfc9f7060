"""Why a manifest leaves images out: how each reason begins, and its kind for a count."""

CONFLICT, OTHER_CLASS, NOT_KEPT = "pixel-identical to", "its class is not among data.classes", "not in the keep-list"
"""How the column ``exclude_reason`` begins; what follows may name images and files of the user."""
EXCLUSION_KINDS = {
    CONFLICT: "identical pixels with different labels",
    OTHER_CLASS: "of another class than asked for",
    NOT_KEPT: "not in the keep-list",
}
"""How a reason begins -> its kind, in the order in which the reasons are applied."""
OTHER_EXCLUSION = "for another reason"


def kind_of_exclusion(reason: str | None) -> str:
    """Return the kind of a reason, without any name of the user; "" if there is no reason.

    Example:
        >>> kind_of_exclusion("not in the keep-list keep.csv")
        'not in the keep-list'
    """
    if not reason or reason != reason:  # NaN in a table
        return ""
    return next((kind for start, kind in EXCLUSION_KINDS.items() if reason.startswith(start)), OTHER_EXCLUSION)
