"""A first replay compiles kernels for ten seconds or more: a second process compiles those of the ledger meanwhile.

It applies an entry of three pages, and requests the results that a replay requests at its end. The compiled kernels go
to the cache on disk, where the replay finds them: of two processes that need a kernel, one compiles it
(schemas/kernel_cache.py).
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from tempfile import TemporaryFile

import numpy as np

from opicflow.pipelines.ledger import CrawlEntry, CrawlItems, Kind, LogPosition, Outcome
from opicflow.pipelines.ledger.pages.space import in_memory
from opicflow.pipelines.refresh.orders import OrderTimes, spread
from opicflow.pipelines.replay.replayed_log import ReplayConfig, ReplayedLog
from opicflow.pipelines.stages.decoded_batch import RoutedBatch
from opicflow.schemas.kernel import is_compiled
from opicflow.schemas.kernel_cache import CompiledElsewhere, without_waiting
from opicflow.schemas.sites import SiteNumbering

_URLS = [f"http://{name}.example/".encode() for name in "abc"]


@contextmanager
def compiled_beside(config: ReplayConfig) -> Iterator[None]:
    """Compile the kernels of a ledger in another process, if none were compiled yet. It is stopped at the end.

    Where no process can be started, the replay compiles them all.
    """
    with ExitStack() as stack:
        if sys.executable and not is_compiled("pipelines.ledger"):
            with suppress(OSError):  # Python within another program may not be a program that can be started
                process = stack.enter_context(_begun(config))
                stack.callback(process.kill)
        yield


def _begun(config: ReplayConfig) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL  # what fails here fails in the replay as well, and is reported there
    with TemporaryFile() as given:  # unlike a pipe it is of no concern to a process that does not read
        given.write(pickle.dumps(replace(config, policies=(), space=in_memory)))
        given.seek(0)
        return subprocess.Popen([sys.executable, "-m", __name__], stdin=given, stdout=quiet, stderr=quiet)


def compile_all(config: ReplayConfig) -> None:
    """Compile what a replay with this configuration needs.

    The replay compiles a part of it at the same time. What it is compiling is not waited for while there is something
    else to compile.
    """
    apply_entries(config)
    for other in (number_sites, order_pages):
        with suppress(CompiledElsewhere), without_waiting():
            make_results(config)
        other(config)
    make_results(config)


def apply_entries(config: ReplayConfig) -> ReplayedLog:
    """Apply an entry of three pages: the replay needs this kernel, the largest one, when it has read the log."""
    log = ReplayedLog(config, config.new_ledger())
    rows = len(_URLS)
    items = CrawlItems.filled(
        rows,
        kind=np.full(rows, Kind.VISIT, np.uint8),
        page=np.arange(1, rows + 1, dtype=np.uint64),
        offset=np.arange(rows, dtype=np.int64),
        time_ms=np.arange(1, rows + 1, dtype=np.int64) * 3_600_000,
        outcome=np.full(rows, Outcome.FETCHED, np.uint8),
        links_known=np.ones(rows, np.uint8),
        link_starts=np.arange(rows + 1, dtype=np.int64),
        link_pages=np.array([2, 3, 1], np.uint64),
        url_starts=np.cumsum([0, *map(len, _URLS)]),
        url_bytes=np.frombuffer(b"".join(_URLS), np.uint8),
    )
    entry = CrawlEntry("compiling", LogPosition(0, 0), LogPosition(rows, 0), items=items)
    list(log.take(_batch(0, entry)))
    list(log.take(_batch(1, replace(entry, start=entry.end)).to_bytes()))
    return log


def _batch(offset: int, entry: CrawlEntry, ends_input: bool = False) -> RoutedBatch:
    return RoutedBatch(offset, offset + 1, entry, "", {}, {}, ends_segment=ends_input, ends_input=ends_input)


def make_results(config: ReplayConfig) -> None:
    """Make what a replay makes at its end: plans, then importance. The replay makes them in the other order."""
    log = apply_entries(config)
    log.ledger.preview()
    rows = len(_URLS)
    end = CrawlEntry("compiling", LogPosition(rows, 0), LogPosition(rows, 0), items=CrawlItems.filled(0))
    list(log.take(_batch(2, end, ends_input=True)))


def number_sites(config: ReplayConfig) -> None:
    """Find the sites of URLs: the last thing that a replay does."""
    SiteNumbering("domain").number_all([url.decode() for url in _URLS])


def order_pages(config: ReplayConfig) -> None:
    """Order fetches of pages, as a replay does when it has planned them."""
    log = apply_entries(config)
    pages = np.arange(1, 1 + len(_URLS), dtype=np.uint64)
    log.ledger.host_hashes(pages)
    none, false = np.zeros(len(pages), np.int64), np.zeros(len(pages), np.bool_)
    spread(OrderTimes(none, false, false, none), none, 0, 3600)


if __name__ == "__main__":
    compile_all(pickle.loads(sys.stdin.buffer.read()))
