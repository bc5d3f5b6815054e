"""Writes snapshots beside the work: a copy of the process compresses a ledger while the ledger goes on.

A ledger may be many gigabytes, and must not change while it is read. So the process is forked, as Redis does it: the
system copies only the memory that the ledger changes meanwhile. The copy compresses the chunks into a file without a
name, and ends. A thread sends the file to storage. One snapshot of a process is written at a time: that bounds the
memory, by the largest of its ledgers. A copy has none of the other threads, and would wait for ever for what one of
them was about to do: it is ended when it has written nothing for long.

The manifest is written when all that the ledger had sent by then has arrived. So a ledger may continue from any
finished snapshot, also from one that is ahead of the state of its stage.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from threading import Event, Lock, Thread
from time import monotonic
from typing import IO, NamedTuple

from opicflow.connectors.runs import kept
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper
from opicflow.pipelines.stages.log_head import LogHead
from opicflow.pipelines.stream.sent import SentHeads
from opicflow.pipelines.stream.snapshot_store import PackedSnapshot, SnapshotStore, StoredPart, pack_chunks
from opicflow.schemas.errors import UserError, in_one_line

_SENT_SECONDS = 300.0
_MOST_STILL_SECONDS = 600.0
"""Before it writes, the copy reads all of a ledger once, while other work has the processor."""
_CHECK_SECONDS = 0.1
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 30.0, 600.0
_NICE = 10

_log = logging.getLogger(__name__)


class Written(NamedTuple):
    """A snapshot that was written, or why it was not."""

    log_ms: int
    """The time of the last record that it has."""
    bytes: int
    journal_bytes: int = 0
    """The bytes of the log before it that were not in the snapshot before."""
    problem: str = ""


@dataclass
class _Pause:
    """How long no snapshot of a shard is tried, after so many failures in a row."""

    failures: int = 0
    until: float = 0.0


class SnapshotWriter:
    """Writes snapshots of the ledgers of a run in this process into a store, one at a time."""

    def __init__(self, store: SnapshotStore, sent: SentHeads, seconds: Callable[[], float] = monotonic) -> None:
        """`sent` are the heads of these ledgers; `seconds` returns the time, for limits, and pauses after failures."""
        self._store = store
        self._sent = sent
        self._seconds = seconds
        self._written: dict[int, Written] = {}
        self._pauses: dict[int, _Pause] = {}
        self._thread: Thread | None = None

    def begin(self, keeper: LedgerKeeper) -> bool:
        """Begin to write a snapshot of a keeper as it is now. False: not now, because of another, or of a failure."""
        shard = keeper.shard
        pause = self._pauses.setdefault(shard, _Pause())
        if shard in self._written or self._seconds() < pause.until:
            return False
        if not _one_at_a_time.acquire(blocking=False):
            return False
        try:
            file = tempfile.TemporaryFile()  # noqa: SIM115  (the thread closes it)
            try:
                copy = _fork(keeper, file)
            except BaseException:
                file.close()
                raise
        except OSError as problem:
            _one_at_a_time.release()
            self._finish(shard, Written(0, 0, problem=in_one_line(problem)))
            return True
        of = shard, keeper.head, keeper.journal_to_ms, keeper.sizes.journal_bytes, copy, file
        self._thread = Thread(target=self._send, args=of, name=f"snapshot-{shard}", daemon=True)
        self._thread.start()
        return True

    def take_written(self, shard: int) -> Written | None:
        """Return, once, how the last snapshot of a shard ended; None while it is written."""
        return self._written.pop(shard, None)

    @property
    def is_writing(self) -> bool:
        """Whether a snapshot is being written."""
        return self._thread is not None

    def close(self) -> None:
        """End nothing: a snapshot that is being written is stored if the outputs before it have arrived."""

    def wait(self) -> None:
        """Wait until the snapshot that is being written has ended."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _send(self, shard: int, head: LogHead, log_ms: int, journal_bytes: int, copy: int, file: IO[bytes]) -> None:
        try:
            with file:
                packed = _packed_by(copy, file, self._seconds)
                if not self._sent.wait(shard, head.next, _SENT_SECONDS):
                    raise SnapshotFailed("the outputs of the ledger did not arrive")
                self._store.write(shard, head, log_ms, packed, file, version("opicflow"))
            self._finish(shard, Written(log_ms, packed.chunk_bytes, journal_bytes))
            with suppress(UserError):  # next time
                self._store.remove_old(shard)
        except Exception as problem:  # of a library, too: the stream goes on
            self._finish(shard, Written(log_ms, 0, problem=in_one_line(problem)))
        finally:
            self._thread = None
            _one_at_a_time.release()

    def _finish(self, shard: int, written: Written) -> None:
        pause = self._pauses[shard]
        if written.problem:
            _log.warning("shard %d: no snapshot was written: %s", shard, written.problem)
            seconds = min(_FIRST_PAUSE_SECONDS * 2**pause.failures, _LONGEST_PAUSE_SECONDS)
            self._pauses[shard] = _Pause(pause.failures + 1, self._seconds() + seconds)
        else:
            self._pauses[shard] = _Pause()
        self._written[shard] = written


class SnapshotFailed(UserError):
    """A snapshot could not be made. One line: why."""


_one_at_a_time = Lock()
"""A lock of the process, not of a run: the process has one memory."""


def writer_of(store: SnapshotStore, run: str) -> SnapshotWriter:
    """Return the writer of a run in this process, all of whose snapshots go into one store."""
    return kept(run, SnapshotWriter, store, kept(run, SentHeads))


def _fork(keeper: LedgerKeeper, file: IO[bytes]) -> int:
    """Start a copy of this process that packs a keeper into a file, and return its process id.

    The copy has one thread. It uses no lock that another thread may hold: no logs, no connections, no imports.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, from Python 3.12 on
        copy = os.fork()
    if copy:
        return copy
    status = 1
    try:
        os.nice(_NICE)
        packed = pack_chunks(keeper.chunks(), file)
        index = json.dumps(packed).encode()
        file.write(index)
        file.write(len(index).to_bytes(_INDEX_BYTES, "big"))
        file.flush()
        status = 0
    except BaseException as problem:
        with suppress(OSError):
            os.write(2, f"snapshot: {type(problem).__name__}: {problem}\n".encode())
    finally:
        os._exit(status)


def _packed_by(copy: int, file: IO[bytes], seconds: Callable[[], float]) -> PackedSnapshot:
    """Wait while the copy of the process writes; return the snapshot that it has packed. Raises `SnapshotFailed`."""
    size, written_at, pause = 0, seconds(), Event()
    while True:
        ended, status = os.waitpid(copy, os.WNOHANG)
        if ended:
            break
        if size < (size_now := os.fstat(file.fileno()).st_size):
            size, written_at = size_now, seconds()
        elif seconds() - written_at > _MOST_STILL_SECONDS:
            os.kill(copy, signal.SIGKILL)
            Thread(target=os.waitpid, args=(copy, 0), daemon=True).start()  # it may be within a call of the system
            raise SnapshotFailed(f"the process that copies the ledger wrote nothing for {_MOST_STILL_SECONDS:g} s")
        pause.wait(_CHECK_SECONDS)
    if status != 0:
        raise SnapshotFailed(f"the process that copies the ledger ended ({status}): see the worker's log")
    end = file.seek(-_INDEX_BYTES, os.SEEK_END)
    size = int.from_bytes(file.read(_INDEX_BYTES), "big")
    file.seek(end - size)
    parts, chunk_bytes = json.loads(file.read(size))
    return PackedSnapshot([StoredPart(*part) for part in parts], chunk_bytes)


_INDEX_BYTES = 8
