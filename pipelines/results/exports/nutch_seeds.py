"""Seed files of Apache Nutch's injector: a URL, then `nutch.score` and `nutch.fetchInterval`, with tabs between.

The injector takes both for pages that are new; for pages that are in its database with `-update`. With `-overwrite` a
page is replaced, and is due at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from opicflow.pipelines.results.exports.export_job import NEVER_AGAIN, ExportJob, url_on_a_line

_LONGEST_INTERVAL = 2**31 - 1
"""Nutch keeps intervals as 32-bit numbers of seconds."""


def importance_seeds(job: ExportJob) -> Iterator[bytes]:
    """Yield seeds with the score of each page: 1 is an average page, and Nutch's default."""
    for some in job.rows:
        yield "".join(f"{url_on_a_line(row.url)}\tnutch.score={row.score!r}\n" for row in some).encode()


def schedule_seeds(job: ExportJob) -> Iterator[bytes]:
    """Yield seeds with the score and the interval of each page. The score is counted with the pages of the schedule."""
    pages = job.rows.total
    for some in job.rows:
        lines = []
        for row in some:
            if row.interval_seconds is None:
                job.left_out[NEVER_AGAIN] += 1
                continue
            seconds = round(min(max(1.0, row.interval_seconds), _LONGEST_INTERVAL))  # in this order NaN is 1
            score = row.importance * pages
            lines.append(f"{url_on_a_line(row.url)}\tnutch.score={score!r}\tnutch.fetchInterval={seconds}\n")
        yield "".join(lines).encode()


def order_seeds(job: ExportJob) -> Iterator[bytes]:
    """Yield seeds whose scores have the sequence of the orders: Nutch's generator takes the highest ones first."""
    for some in job.ranked_orders():
        yield "".join(f"{url_on_a_line(url)}\tnutch.score={rank}.0\n" for rank, url in some).encode()
