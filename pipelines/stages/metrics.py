"""Counters and gauges of Beam, which a runner shows with their stage."""

from __future__ import annotations

from typing import Any

from apache_beam.metrics import metric

NAMESPACE = "opicflow"
_metrics: Any = metric.Metrics  # Beam does not type it


def count(name: str, number: int = 1) -> None:
    """Add to a counter."""
    if number:
        _metrics.counter(NAMESPACE, name).inc(number)


def set_gauge(name: str, value: int) -> None:
    """Set a gauge to its present value."""
    _metrics.gauge(NAMESPACE, name).set(value)
