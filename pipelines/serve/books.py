"""The light for the books: whether the figures can be trusted, by checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from opicflow.pipelines.serve import wording

MOST_REJECTED = 0.05
"""If a larger part of the events could not be used, somebody should look."""
NOTHING_PROVEN = 2.0
"""The largest certificate: it is the largest distance that there can be."""
_BY_WEIGHT = ("Cash", "Events", "Brokers", "Workers", "Clock", "Job", "Lag", "Checkpoints")


class Check(NamedTuple):
    """One check of the books: its name, whether it is right (None: not known), and a sentence."""

    name: str
    is_right: bool | None
    sentence: str


class Light(NamedTuple):
    """One light for the books: `right`, `look` or `wrong`, with a headline and its checks, those that fail first."""

    state: str
    headline: str
    checks: tuple[Check, ...]


def light_of(checks: Iterable[Check], has_pages: bool, is_stopped: bool) -> Light:
    """Return the light for these checks. `is_stopped`: they are of a stream that counts nothing."""
    ordered = tuple(
        sorted(checks, key=lambda check: ((False, None, True).index(check.is_right), _position_of(check.name)))
    )
    wrong = [check.name.lower() for check in ordered if check.is_right is False]
    if any(name in ("cash", "events") for name in wrong):
        return Light("wrong", f"The books are wrong: {', '.join(wrong)}", ordered)
    if is_stopped:
        return Light("wrong", f"The stream does not go on: {', '.join(wrong)}", ordered)
    if wrong:
        return Light("look", f"Please check: {', '.join(wrong)}", ordered)
    if not has_pages:
        return Light("look", "There are no pages yet", ordered)
    unknown = any(check.is_right is None for check in ordered)
    return Light("right", "The books are right" + (", as far as is known" if unknown else ""), ordered)


def _position_of(check: str) -> int:
    """The position of a check among equally right ones: the most harmful first, others in their order."""
    return _BY_WEIGHT.index(check) if check in _BY_WEIGHT else len(_BY_WEIGHT)


def proven_ranks(certificate: float) -> Check:
    """The check of ranks that have a certificate."""
    if certificate >= NOTHING_PROVEN:
        return Check("Ranks", False, "nothing is proven yet: too little of the graph was seen")
    return Check("Ranks", True, f"proven: within {wording.bound(certificate)} of the exact ranks of the links seen")
