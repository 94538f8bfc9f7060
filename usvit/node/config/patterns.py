"""Patterns with ``*`` and ``?`` of the rules of a node: whether one includes another."""


def includes(wide: str, narrow: str) -> bool:
    """Return True if every text that matches the pattern ``narrow`` surely matches ``wide``.

    ``narrow`` is matched like a text in which ``*`` fits only a ``*`` of ``wide``, and ``?`` only ``?`` or ``*``.
    """
    reached = {0}
    reached |= _past_stars(wide, reached)
    for one in narrow:
        stepped = set()
        for at in reached:
            if at == len(wide):
                continue
            if wide[at] == "*":
                stepped.add(at)
            elif one != "*" and (wide[at] == one or wide[at] == "?"):
                stepped.add(at + 1)
        reached = stepped | _past_stars(wide, stepped)
    return len(wide) in reached


def _past_stars(pattern: str, places: set[int]) -> set[int]:
    found = set()
    for place in places:
        while place < len(pattern) and pattern[place] == "*":
            place += 1
            found.add(place)
    return found
