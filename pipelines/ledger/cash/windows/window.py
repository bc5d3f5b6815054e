"""The turns of the clock in a window of some days."""

from __future__ import annotations

from opicflow.pipelines.ledger.config import SECONDS_PER_DAY

_WRAP = 1 << 64
_FEWEST_TURNS_AT_FIRST = 4.0
_SHORTEST_TURNS = 2.0**-20


def window_turns(days: list[tuple[int, int]], window_days: float, second: int, theta: int, theta_start: int) -> float:
    """The turns that the clock made in the last `window_days` before `second`.

    `days` pairs seconds with readings of the clock, one a day. The list is brought up to date: the reading of a new
    day is appended, those that no window needs any more are removed.
    """
    if not days or second // SECONDS_PER_DAY > days[-1][0] // SECONDS_PER_DAY:
        days.append((second, theta))
    begins = second - window_days * SECONDS_PER_DAY
    while len(days) > 1 and days[1][0] <= begins:
        days.pop(0)
    if begins < days[0][0]:
        window = max(turns(theta - theta_start), _FEWEST_TURNS_AT_FIRST)
    else:
        (second_0, theta_0), (second_1, theta_1) = days[0], days[1] if len(days) > 1 else (second, theta)
        share = (begins - second_0) / (second_1 - second_0) if second_1 > second_0 else 0.0
        window = turns(theta - theta_0) - share * turns(theta_1 - theta_0)
    return max(window, _SHORTEST_TURNS)


def turns(units: int) -> float:
    """A difference of two readings of the clock (2^-40 turn, modulo 2^64) in turns."""
    return (units % _WRAP) / (1 << 40)
