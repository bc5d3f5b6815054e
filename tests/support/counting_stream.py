"""A script that runs a stream for the tests of the cluster: counts up for every key, and writes the sums to files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.io.flink.flink_streaming_impulse_source import FlinkStreamingImpulseSource
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

KEYS = 8
EACH = 5  # numbers per key and impulse
PAUSE_MS = 100

NEXT, SUM, LAST = (
    beam.DoFn.StateParam(ReadModifyWriteStateSpec(name, VarIntCoder())) for name in ("next", "sum", "last")
)


def to_keys(_: bytes) -> list[tuple[str, int]]:
    return [(f"key-{number}", 0) for number in range(KEYS)]


class CountUp(beam.DoFn):
    """Yields 1, 2, 3 … for every key, a few at each impulse. The next number is state."""

    def process(self, element: tuple[str, int], next_: Any = NEXT) -> Iterator[tuple[str, int]]:
        key, _ = element
        at = next_.read() or 1
        next_.write(at + EACH)
        for number in range(at, at + EACH):
            yield key, number


class AddUp(beam.DoFn):
    """Adds up the numbers of a key. Refuses a number that is not the next one."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._events = Metrics.counter("opicflow", "events")
        self._latest = Metrics.gauge("opicflow", "latest")
        self._sizes = Metrics.distribution("opicflow", "sizes")

    def process(self, element: tuple[str, int], sum_: Any = SUM, last: Any = LAST) -> None:
        key, number = element
        if number != (last.read() or 0) + 1:
            raise ValueError(f"{key}: {number} after {last.read()}")
        total = (sum_.read() or 0) + number
        last.write(number)
        sum_.write(total)
        self._events.inc()
        self._latest.set(number)
        self._sizes.update(number % 10)
        with open(os.path.join(self._folder, key), "a", encoding="ascii") as file:
            file.write(f"{number} {total}\n")


def main(folder: str, *options: str) -> None:
    """Submit the stream, and return."""
    pipeline = beam.Pipeline(options=PipelineOptions(list(options)))
    _ = (
        pipeline
        | FlinkStreamingImpulseSource().set_interval_ms(PAUSE_MS)
        | "ToKeys" >> beam.FlatMap(to_keys).with_output_types(tuple[str, int])
        | "CountUp" >> beam.ParDo(CountUp()).with_output_types(tuple[str, int])
        | "AddUp" >> beam.ParDo(AddUp(folder))
    )
    result = pipeline.run()
    print(result.state, flush=True)
    os._exit(0)  # the job runs without this process; joining the threads of Beam's client has hung once


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from support.counting_stream import main as importable  # so that workers find its classes by name

    importable(*sys.argv[1:])
