"""The one format in which times are printed and written: every writer of times calls these functions.

They take any number. Times outside the years 1 to 9999, which few readers can make a date of, become the nearest one.
"""

from __future__ import annotations

from datetime import datetime, timedelta

FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""The years 1 to 9999, in seconds since 1970."""


def iso_time(time_ms: float) -> str:
    """Return a time as ISO 8601 in UTC, to the second.

    >>> iso_time(1_767_225_600_999), iso_time(2**63 - 1)
    ('2026-01-01T00:00:00Z', '9999-12-31T23:59:59Z')
    """
    return f"{(datetime(1970, 1, 1) + timedelta(seconds=_within(time_ms // 1000))).isoformat()}Z"


def time_ms(second: float) -> int:
    """Return the milliseconds of a second since 1970.

    >>> time_ms(1_767_225_600), time_ms(2**63 - 1)
    (1767225600000, 253402300799000)
    """
    return 1000 * _within(second)


def _within(second: float) -> int:
    return int(min(max(FIRST_SECOND, second), LAST_SECOND))  # in this order NaN is the first second
