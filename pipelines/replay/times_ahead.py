"""Events of a state's logs that were rejected because their time was ahead of the clock: they are read again later.

They do not count as read. A state keeps where they are: a range of the log for each segment that had some, the time up
to which events were accepted then, and the earliest time of the others. When the clock has come there, a replay of the
log reads the range again, for the events behind the first of the two times (docs/decisions/times.md).
"""

from __future__ import annotations

from collections.abc import Collection

from opicflow.connectors.files.opening import STDIN
from opicflow.pipelines.replay.state import RangeAhead, Reached, Source, State
from opicflow.pipelines.stages.decoded_batch import SourceProgress
from opicflow.pipelines.stages.route import MOST_AHEAD_MS
from opicflow.schemas.dates import iso_time
from opicflow.schemas.errors import printable

_MOST_NOTES = 5


def keep_ahead(state: State, read: SourceProgress, begun: Source | RangeAhead, latest_ms: int) -> None:
    """Keep where the events ahead are in what a segment has read of a log, from where `begun` is."""
    if not read.ahead_ms or (isinstance(begun, Source) and begun.file == STDIN):  # which cannot be read again
        return
    end, partitions = read.at, list[Reached](read.partitions)
    source = begun.source if isinstance(begun, RangeAhead) else begun.name
    for one in state.ahead:
        if (one.source, one.after_ms, one.end) == (source, latest_ms, begun.at):
            one.end, one.end_partitions, one.earliest_ms = end, partitions, min(one.earliest_ms, read.ahead_ms)
            return
    name = f"{source}/{latest_ms}/{begun.at}"  # a range is never read again with the same limit
    state.ahead.append(
        RangeAhead(name, source, begun.at, end, latest_ms, read.ahead_ms, list(begun.partitions), partitions)
    )


def due(state: State, source: str, latest_ms: int) -> list[RangeAhead]:
    """Return the ranges of a source with events that are no longer ahead."""
    return [one for one in state.ahead if one.source == source and one.earliest_ms <= latest_ms]


def ahead_notes(state: State, since: Collection[str], latest_ms: int) -> list[str]:
    """Return notes about events that are ahead since this run, and about those that can be read now.

    `since`: the names of the ranges that the state had before.
    """
    notes = []
    files = {source.name: source.file for source in state.sources}
    for one in state.ahead:
        file = printable(files[one.source])
        if one.earliest_ms <= latest_ms:
            notes.append(f"{file}: events that were ahead of the clock can be read now: replay it into this state.")
        elif one.name not in since:
            notes.append(
                f"{file}: events from {iso_time(one.earliest_ms)} on are ahead of the clock and do not count as read: "
                f"replay it into this state from {iso_time(one.earliest_ms - MOST_AHEAD_MS)} on, or with --latest."
            )
    notes = list(dict.fromkeys(notes))
    if (more := len(notes) - _MOST_NOTES) > 0:
        notes[_MOST_NOTES:] = [f"{more} more notes about events that were ahead of the clock."]
    return notes
