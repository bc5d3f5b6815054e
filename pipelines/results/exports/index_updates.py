"""Bulk requests to OpenSearch and Elasticsearch: partial updates of documents whose id is the SHA-256 of the URL.

StormCrawler gives the documents of its status index, and by default those of pages, this id. An update of a document
that is not there fails alone, with status 404, and makes none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from opicflow.pipelines.results.exports.export_job import ExportJob
from opicflow.pipelines.results.queue_keys import queue_key
from opicflow.schemas.dates import iso_time

_LEAST_SCORE = 1.17549435e-38
"""A rank_feature refuses 0 and all that 32 bits cannot hold as a normal number. It keeps nine bits."""


def score_updates(job: ExportJob) -> Iterator[bytes]:
    """Yield updates of `score`, which can be a rank_feature: positive, with nine digits."""
    for some in job.rows:
        yield _bulk(job, some, lambda row: {"score": float(f"{max(row.score, _LEAST_SCORE):.9g}")})


def schedule_updates(job: ExportJob) -> Iterator[bytes]:
    """Yield updates of `nextFetchDate`; null for a page that is not to be fetched again."""
    for some in job.rows:
        yield _bulk(job, some, lambda row: _next_fetch(row.due))


def order_updates(job: ExportJob) -> Iterator[bytes]:
    """Yield updates of `nextFetchDate`: when the order may be carried out."""
    for some in job.rows:
        yield _bulk(job, some, lambda row: _next_fetch(row.fetch_ms))


def _next_fetch(time_ms: int | None) -> dict[str, str | None]:
    return {"nextFetchDate": None if time_ms is None else iso_time(time_ms)}


def _bulk(job: ExportJob, rows: list[Any], fields: Callable[[Any], Mapping[str, object]]) -> bytes:
    key_of = None if job.routing == "none" else queue_key(job.routing)
    lines = []
    for row in rows:
        at = {"_index": job.name, "_id": hashlib.sha256(row.url.encode()).hexdigest()}
        if key_of is not None:
            at["routing"] = key_of(row.url)
        lines += [orjson.dumps({"update": at}), b"\n", orjson.dumps({"doc": fields(row)}), b"\n"]
    return b"".join(lines)
