"""While our pipelines run, Beam's sampler sleeps for a short time only, so that bundles end when their work is done."""

from __future__ import annotations

from contextlib import ExitStack

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.worker import bundle_processor, statesampler

from opicflow.pipelines.stages.bundle_ends import LONGEST_SLEEP_MS, bundles_end_sooner


def periods(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Return how long the samplers of a pipeline sleep."""
    made: list[statesampler.StateSampler] = []
    make = statesampler.StateSampler.__init__

    def remember(self: statesampler.StateSampler, *arguments: object) -> None:
        make(self, *arguments)
        made.append(self)

    with monkeypatch.context() as patch:
        patch.setattr(statesampler.StateSampler, "__init__", remember)
        with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([])) as pipeline:
            _ = pipeline | beam.Create([1]) | beam.Map(lambda number: number + 1)
    assert bundle_processor.statesampler is statesampler
    assert made, "bundles have no sampler any more: is this still needed?"
    return {sampler.sampling_period_ms for sampler in made}


def test_samplers_sleep_for_a_short_time_while_our_pipelines_run_and_then_as_long_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = ExitStack(), ExitStack()
    first.enter_context(bundles_end_sooner())
    second.enter_context(bundles_end_sooner())
    assert periods(monkeypatch) == {LONGEST_SLEEP_MS}
    first.close()
    assert periods(monkeypatch) == {LONGEST_SLEEP_MS}, "the other one is still under way"
    second.close()
    assert periods(monkeypatch) == {statesampler.DEFAULT_SAMPLING_PERIOD_MS}
