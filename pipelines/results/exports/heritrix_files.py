"""Files of Heritrix 3: precedences for its PrecedenceLoader, and `orders.force` for its action directory."""

from __future__ import annotations

import math
from collections.abc import Iterator

from opicflow.pipelines.results.exports.export_job import ExportJob, url_on_a_line

_AVERAGE = 62
_STEPS_PER_DOUBLING = 3
_MOST = 120
"""Heritrix sorts by up to 127, of which the policy's own base takes some. The lowest comes first; 0 means none."""


def precedences(job: ExportJob) -> Iterator[bytes]:
    """Yield a URL and its precedence a line: 62 for an average page, 3 less for twice its score."""
    for some in job.rows:
        yield "".join(f"{url_on_a_line(row.url)} {precedence_of(row.score)}\n" for row in some).encode()


def precedence_of(score: float) -> int:
    """Return the precedence of a score, from 1 to 120."""
    if not score > 0.0:
        return _MOST
    return round(min(max(1.0, _AVERAGE - _STEPS_PER_DOUBLING * math.log2(score)), _MOST))


def forced_urls(job: ExportJob) -> Iterator[bytes]:
    """Yield the URLs to fetch now although they were fetched before, as lines of a recovery log."""
    for some in job.rows:
        yield "".join(f"F+ {url_on_a_line(row.url)}\n" for row in some).encode()
