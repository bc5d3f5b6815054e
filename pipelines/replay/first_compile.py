"""A first replay compiles kernels for half a minute: a second process compiles those of the ledger meanwhile.

It applies an entry of three pages, and requests the results that a replay requests at its end. The compiled kernels go
to the cache on disk, where the replay finds it: of two processes that need a kernel, one compiles
(schemas/kernel_cache.py).
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from opicflow.pipelines.ledger import CrawlEntry, CrawlItems, Kind, LogPosition, Outcome
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.pipelines.ledger.space import in_memory
from opicflow.pipelines.replay.keeper import KeeperConfig, ReplayHead, ReplayKeeper
from opicflow.schemas.kernel import is_compiled


@contextmanager
def compiled_beside(config: KeeperConfig) -> Iterator[None]:
    """Compile the kernels of a ledger in another process, if none were compiled yet. It is stopped at the end."""
    if is_compiled():
        yield
        return
    command = [sys.executable, "-m", __name__]
    quiet = subprocess.DEVNULL  # what fails here fails in the replay as well, and is reported there
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(pickle.dumps(replace(config, policies=(), space=in_memory)))
            process.stdin.close()
            yield
        finally:
            process.kill()


def compile_all(config: KeeperConfig) -> None:
    """Compile what a replay with this configuration needs: what applies entries, then what makes results.

    Plans come before importance: the replay makes them in the other order, so both processes have something to do.
    """
    keeper = ReplayKeeper(config, config.new_ledger(), ReplayHead())
    rows = 3
    urls = [f"http://{name}.example/".encode() for name in "abc"]
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
        url_starts=np.cumsum([0, *map(len, urls)]),
        url_bytes=np.frombuffer(b"".join(urls), np.uint8),
    )
    entry = CrawlEntry("compiling", LogPosition(0, 0), LogPosition(rows, 0), items=items)
    note = {"portion": 0, "part": 0, "ended": False, "last": False, "counts": {}, "rejects": {}}
    list(keeper._apply(entry, note))  # first: the replay needs its kernel, the largest one, when it has read the log
    list(keeper.take(encode_entry(replace(entry, start=entry.end), note)))
    keeper.ledger.preview()
    end = CrawlEntry("compiling", LogPosition(rows, 0), LogPosition(rows, 0), items=CrawlItems.filled(0))
    list(keeper._apply(end, {**note, "part": 1, "ended": True, "last": True, "files": []}))


if __name__ == "__main__":
    compile_all(pickle.loads(sys.stdin.buffer.read()))
