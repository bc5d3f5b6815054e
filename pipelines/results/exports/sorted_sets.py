"""Sorted sets of Redis, as commands in its protocol, which `redis-cli --pipe` sends. Texts in it need no escapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson

from opicflow.pipelines.results.exports.export_job import ExportJob


def important_pages(job: ExportJob) -> Iterator[bytes]:
    """Yield URLs with their scores: 1 is an average page."""
    for some in job.rows:
        yield _members(job.name, ((repr(row.score), row.url.encode()) for row in some))


def due_pages(job: ExportJob) -> Iterator[bytes]:
    """Yield URLs with the time they are due, in seconds since 1970: the lowest is due first."""
    for some in job.dated():
        yield _members(job.name, ((str(row.due // 1000), row.url.encode()) for row in some))


def ordered_pages(job: ExportJob) -> Iterator[bytes]:
    """Yield URLs with numbers in the sequence of the orders: the highest comes first."""
    for some in job.ranked_orders():
        yield _members(job.name, ((str(rank), url.encode()) for rank, url in some))


def start_requests(job: ExportJob) -> Iterator[bytes]:
    """Yield requests for a spider of scrapy-redis, which takes the highest number first (START_URLS_AS_ZSET)."""
    for some in job.ranked_orders():
        yield _members(job.name, ((str(rank), orjson.dumps({"url": url})) for rank, url in some))


def _members(key: str, members: Iterable[tuple[str, bytes]]) -> bytes:
    begin = b"*4\r\n" + _word(b"ZADD") + _word(key.encode())
    return b"".join(begin + _word(score.encode()) + _word(member) for score, member in members)


def _word(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)
