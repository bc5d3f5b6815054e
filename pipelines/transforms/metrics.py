"""Counters and gauges of a stream: Beam's, which a runner shows with the stage that they belong to."""

from __future__ import annotations

from typing import Any

from apache_beam.metrics import metric

NAMESPACE = "opicflow"
_metrics: Any = metric.Metrics  # comes without types


def count(name: str, number: int = 1) -> None:
    """So many more of them."""
    if number:
        _metrics.counter(NAMESPACE, name).inc(number)


def stands_at(name: str, value: int) -> None:
    """What something stands at now."""
    _metrics.gauge(NAMESPACE, name).set(value)
