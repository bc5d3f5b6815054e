"""Records of results that came late: behind a newer record of their key.

A worker that was given up may still send its last records, after the worker that took over has sent newer records. The
time of a record is that of its position in the log that it was computed from, so the record with the highest time
holds.
"""

from __future__ import annotations

MOST_KEYS = 200_000


class LateRecords:
    """Finds the records that are older than one that was seen before, of the same topic and key.

    It remembers the newest time of `most_keys` to twice as many keys, those that were seen last, tombstones too: what
    comes late comes minutes late at most.
    """

    def __init__(self, most_keys: int = MOST_KEYS) -> None:
        """Nothing was seen."""
        self._most_keys = most_keys
        self._recent: dict[tuple[str, bytes | None], int] = {}
        self._before: dict[tuple[str, bytes | None], int] = {}

    def is_late(self, topic: str, key: bytes | None, time_ms: int) -> bool:
        """Whether a record with a higher time was seen; if not, this one is noted. A repeated record is not late."""
        name = topic, key
        newest = self._recent.get(name) or self._before.get(name, -1)
        if time_ms < newest:
            return True
        if len(self._recent) >= self._most_keys and name not in self._recent:
            self._before, self._recent = self._recent, {}
        self._recent[name] = time_ms
        return False
