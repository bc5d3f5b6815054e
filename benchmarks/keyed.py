"""The obvious Beam pipeline for OPIC: every page is a key, its cash and history are state, every link is a message."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import FloatCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec


class Send(beam.DoFn):
    """A visit becomes a message to every page it links to."""

    def process(self, element: bytes) -> Iterator[tuple[str, float]]:
        """One visit."""
        event = json.loads(element)
        for link in event["links"]:
            yield link, 1.0 / len(event["links"])


class Receive(beam.DoFn):
    """A page adds received amounts to its cash."""

    CASH = ReadModifyWriteStateSpec("cash", FloatCoder())

    def process(
        self,
        element: tuple[str, float],
        cash: Any = beam.DoFn.StateParam(CASH),  # noqa: B008  (Beam's way to declare state)
    ) -> Iterator[tuple[str, float]]:
        """One transfer."""
        page, amount = element
        total = (cash.read() or 0.0) + amount
        cash.write(total)
        yield page, total


def keyed_once(log: str) -> dict[str, Any]:
    """Run it over a log."""
    with open(log, "rb") as file:
        lines = file.read().splitlines()
    begun = time.perf_counter()
    with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([])) as pipeline:
        _ = (
            pipeline
            | "Lines" >> beam.Create(lines)
            | "Send" >> beam.ParDo(Send()).with_output_types(tuple[str, float])
            | "Receive" >> beam.ParDo(Receive())
            | "Count" >> beam.combiners.Count.Globally()
        )
    return {"seconds": time.perf_counter() - begun, "events": len(lines)}
