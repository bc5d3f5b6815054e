"""The data of a report, from the result of a replay."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from opicflow.pipelines.ledger import Outcome
from opicflow.pipelines.replay.report import Report, Sample, TopPage
from opicflow.pipelines.results.record_columns import pages_of, ranked_sites
from opicflow.pipelines.transforms.publish import FLOWING

if TYPE_CHECKING:
    from opicflow.pipelines.replay.runner import ReplayResult

_BARS = 40
_TOP_HOSTS = 20


def report_of(result: ReplayResult, inputs: Sequence[str]) -> Report:
    """Return the report of a replay of these inputs."""
    pages = [pages_of(part) for part in result.importance]
    first = pages[0]
    c = first.columns
    top = tuple(
        TopPage(
            page=int(c["pages"][row]),
            url=url,
            importance=float(c["importance"][row]),
            score=float(c["score"][row]),
            trend_per_day=float(c["trend_per_day"][row]),
            visits=int(c["visits"][row]),
            last_outcome=Outcome(int(c["last_outcome"][row])).name,
            measured=bool(c["measured"][row]),
        )
        for row, url in enumerate(first.urls[:50])
    )
    summary = {name: value for name, value in result.summary.items() if isinstance(value, (int, float, str))}
    examples = []
    for line in result.reject_lines:
        record = json.loads(line)
        excerpt = record.get("bytes")
        if excerpt is None:
            excerpt = base64.b64decode(record["bytes_base64"]).decode("utf-8", "backslashreplace")
        excerpt = excerpt[:200]
        examples.append((record["reason"], f"{record['source']}, byte {record['offset']}", excerpt))
    return Report(
        title=", ".join(inputs) if len(inputs) < 4 else f"{inputs[0]} and {len(inputs) - 1} more",
        summary=summary,
        samples=tuple(
            Sample(
                events=sample["visits"],
                time_ms=sample["time_ms"],
                visits=sample["visits"],
                pages=sample["pages"],
                pages_read=sample["pages_read"],
                idle_share=sample["idle_share"],
                top=tuple((page, importance) for page, importance in sample["top"]),
            )
            for sample in result.samples
        ),
        top=top,
        hosts=tuple(ranked_sites(pages, "host")[:_TOP_HOSTS]),
        score_counts=_histogram(np.concatenate([p.columns["score"] for p in pages])),
        idle={outcome: share for outcome, share in result.idle.items() if Outcome[outcome] not in FLOWING},
        rejects=result.summary["rejects_by_reason"],
        reject_examples=tuple(examples),
        notes=tuple(result.notes),
    )


def _histogram(scores: Any) -> tuple[tuple[float, float, int], ...]:
    positive = scores[scores > 0]
    if len(positive) == 0:
        return ()
    low, high = np.log10(positive.min()), np.log10(positive.max())
    edges = 10 ** np.linspace(low - 1e-9, max(high, low + 0.1) + 1e-9, _BARS + 1)
    counts, _ = np.histogram(positive, edges)
    return tuple(
        (float(begin), float(end), int(number))
        for begin, end, number in zip(edges[:-1], edges[1:], counts, strict=True)
    )
