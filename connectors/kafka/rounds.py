"""The timer of a stream on Beam's in-process runner, where `PollTimer` of Flink is not."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from typing import Any

import apache_beam as beam
from apache_beam import typehints
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.transforms.core import RestrictionProvider

from opicflow.connectors.runs import kept


class RoundTimer(beam.PTransform[Any, Any]):
    """Emits an element in each round of Beam's in-process runner, until the run is to stop, or there were enough.

    That runner calls a splittable `DoFn` again that has put off the rest of its work, and has given its elements to all
    stages before. It needs some more memory for each round, until the pipeline ends.
    """

    def __init__(self, run: str, most_rounds: int) -> None:
        """`run` is that of the `Stopping` in this process."""
        super().__init__()
        self._run = run
        self._most_rounds = most_rounds

    def expand(self, pbegin: Any) -> Any:
        """Begin with one element, of as many parts as there may be rounds."""
        par_do: Any = beam.ParDo
        one = pbegin | "One" >> beam.Create([(self._run, self._most_rounds)], reshuffle=False)
        return one | "Rounds" >> par_do(_Rounds()).with_output_types(typehints.KV[int, int])


class Stopping:
    """Whether a run in this process is to stop."""

    def __init__(self, event: Event | None = None) -> None:
        """It is to stop when the event is set."""
        self.event = event or Event()

    def close(self) -> None:
        """Nothing has to be closed."""


class _UnboundedTracker(OffsetRestrictionTracker):
    """Beam's own says that its work is bounded, and is then not asked again."""

    def is_bounded(self) -> bool:
        return False


class _RoundNumbers(RestrictionProvider):
    """The rounds of an element (a run, and the number of rounds)."""

    def initial_restriction(self, element: tuple[str, int]) -> OffsetRange:
        return OffsetRange(0, element[1])

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return _UnboundedTracker(restriction)

    def restriction_size(self, element: tuple[str, int], restriction: OffsetRange) -> int:
        return int(restriction.size())


class _Rounds(beam.DoFn):
    """The splittable `DoFn` of `RoundTimer`."""

    @beam.DoFn.unbounded_per_element()
    def process(
        self,
        element: tuple[str, int],
        rounds: Any = beam.DoFn.RestrictionParam(_RoundNumbers()),  # noqa: B008  (Beam's way to declare a restriction)
    ) -> Iterator[tuple[int, int]]:
        run, last = element
        at = rounds.current_restriction().start
        if kept(run, Stopping).event.is_set():
            at = last - 1
        if rounds.try_claim(at) and at < last - 1:
            yield 0, 0
            rounds.defer_remainder()
