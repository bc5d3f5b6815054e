"""The one format in which dates are printed and written."""

from __future__ import annotations

from datetime import datetime, timezone


def iso_time(time_ms: float) -> str:
    """Return a time as ISO 8601 in UTC, to the second.

    >>> iso_time(1_767_225_600_999)
    '2026-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(time_ms // 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
