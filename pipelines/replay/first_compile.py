"""A first replay compiles kernels for ten seconds or more: a second process compiles those of the ledger meanwhile.

It replays three pages, and makes the results that a replay makes at its end. The compiled kernels go to the cache on
disk, where the replay finds them: of two processes that need a kernel, one compiles it, and the other one waits for it
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

from opicflow.pipelines.ledger import CrawlEntry, ItemWriter, LogPosition
from opicflow.pipelines.ledger.pages.space import in_memory
from opicflow.pipelines.replay.replayed_log import ReplayConfig, ReplayedLog
from opicflow.pipelines.stages.decoded_batch import RoutedBatch
from opicflow.schemas.kernel import is_compiled


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
    """Compile what a replay with this configuration needs: the largest kernel first, which applies entries.

    At the end a replay makes importance, then plans. Here plans are first, so that the two share the work.
    """
    log = ReplayedLog(config, config.new_ledger())
    entry = _visits(LogPosition(0, 0))
    list(log.take(_batch(0, entry)))
    again = _visits(entry.end)
    list(log.take(_batch(1, again).to_bytes()))
    log.ledger.preview()
    end = ItemWriter(again.end).entry(start=again.end)
    list(log.take(_batch(2, end, ends_input=True)))


def _visits(start: LogPosition) -> CrawlEntry:
    """Return visits from this position on."""
    writer = ItemWriter(start)
    for page in (1, 2, 3):
        writer.visit(page, [1 + page % 3], time_ms=3_600_000 * page, url=b"http://%d.example/" % page)
    return writer.entry(start=start)


def _batch(offset: int, entry: CrawlEntry, ends_input: bool = False) -> RoutedBatch:
    return RoutedBatch(offset, offset + 1, entry, "", {}, {}, ends_segment=ends_input, ends_input=ends_input)


if __name__ == "__main__":
    compile_all(pickle.loads(sys.stdin.buffer.read()))
