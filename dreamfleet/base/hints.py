"""What a user may have meant by a name that does not exist."""

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str], least: float = 0.65) -> list[str]:
    """Up to three of `names` that come closest to `name`, by the whole or, slightly less, by the last dotted part.

    `least` is how similar they have to be, 1 for the same.
    """

    def score(other: str) -> float:
        return max(_similarity(name, other), 0.95 * _similarity(name.split(".")[-1], other.split(".")[-1]))

    scores = {other: score(other) for other in names}
    best = max(scores.values(), default=0.0)
    near = [other for other in scores if scores[other] >= max(least, best - 0.05)]
    return sorted(near, key=lambda other: -scores[other])[:3]


def did_you_mean(name: str, names: Iterable[str], otherwise: str) -> str:
    """The question with the nearest names, or what to say if none is near."""
    near = nearest(name, names)
    return f"did you mean {' or '.join(near)}?" if near else otherwise


def choose_from(name: str, names: Iterable[str]) -> str:
    """What to say if `name` is not among a few names: all of them, and the nearest."""
    names = list(names)
    hint = did_you_mean(name, names, "")
    return f"choose from {', '.join(names)}" + (f" ({hint})" if hint else "")


def _similarity(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()
