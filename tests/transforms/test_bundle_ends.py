"""Beam's sampler sleeps for a short time only, so that bundles end when their work is done."""

from __future__ import annotations

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.worker import bundle_processor, statesampler

from opicflow.pipelines.transforms.bundle_ends import LONGEST_SLEEP_MS, end_bundles_sooner


def test_the_samplers_of_bundles_sleep_for_a_short_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[statesampler.StateSampler] = []
    make = statesampler.StateSampler.__init__

    def remember(self: statesampler.StateSampler, *arguments: object) -> None:
        make(self, *arguments)
        made.append(self)

    end_bundles_sooner()
    monkeypatch.setattr(statesampler.StateSampler, "__init__", remember)
    with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([])) as pipeline:
        _ = pipeline | beam.Create([1]) | beam.Map(lambda number: number + 1)
    assert bundle_processor.statesampler is statesampler
    assert made, "bundles have no sampler any more: is this still needed?"
    assert {sampler.sampling_period_ms for sampler in made} == {LONGEST_SLEEP_MS}
