"""The files of a replay's results: each is written while the next results are computed.

They are beside those of the run before until all are on the disk, and get their names together: a full disk leaves the
results of the run before.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from opicflow.connectors.files.divided_files import divided_file, existing_paths
from opicflow.connectors.files.locked_folder import temporary_folder
from opicflow.connectors.files.opening import InputRefused
from opicflow.connectors.files.whole_file import remove_leftovers, sync_folder, synced_file, whole_file
from opicflow.pipelines.replay.state import FolderInUse
from opicflow.pipelines.results.files import (
    FORMATS,
    load_arrow,
    write_rejects,
    write_tombstones,
    written_result,
)
from opicflow.pipelines.results.part_files import ArrivingParts, Stopped, arriving_parts
from opicflow.pipelines.results.record_columns import RESULTS
from opicflow.pipelines.stages import outputs
from opicflow.schemas.pages import KEY_BYTES, PageIds

_WORK = ".opicflow-"
"""What the names of work folders in folders of results begin with."""
_TEMPORARY = "opicflow-replay-"
"""What the names of work folders in the folder of temporary files begin with."""


class _Records(NamedTuple):
    """Records in a file, or several: its name, and the kinds of the outputs that it is made of."""

    name: str
    kinds: tuple[str, ...]


_ALWAYS = (
    _Records("importance", (outputs.FINAL_IMPORTANCE,)),
    _Records("refresh-schedule", (outputs.FINAL_SCHEDULE,)),
    _Records("crawl-orders", (outputs.ORDERS, outputs.FINAL_ORDERS)),
)
_SITES = _Records("site-importance", (outputs.FINAL_SITES,))
_PUBLICATIONS = (
    _Records("publications", (outputs.IMPORTANCE,)),
    _Records("refresh-publications", (outputs.SCHEDULE,)),
    _Records("page-changes", (outputs.CHANGES,)),
)
_REJECTS, _TOMBSTONES = "rejects", "tombstones"
_SUMMARY = "summary"
_NAMES = (*(one.name for one in (*_ALWAYS, _SITES, *_PUBLICATIONS)), _REJECTS, _TOMBSTONES)
_KEY = ".page-id-key"
"""The file with the key of page ids, in a folder of results whose replay has no state. Readers of results skip it."""
_FILES = rf"({'|'.join(_NAMES)})(-\d{{5}}-of-\d{{5}})?\.({'|'.join(FORMATS)})|{_SUMMARY}\.json|{re.escape(_KEY)}"

_LONGEST_END_SECONDS = 10


class FileKinds(NamedTuple):
    """Which files there are, in which format, and into how many each is divided; `many_rows`: there will be many."""

    format: str
    parts: int
    sites: bool
    publications: bool
    many_rows: bool = False


class _Written(NamedTuple):
    """Files of a result that are written, and get their names when the stack is closed."""

    name: str
    paths: list[Path]
    names: ExitStack


class ResultFiles:
    """The files of results, which a thread writes as soon as what belongs into them arrives.

    A second thread would need memory while the plan is made, and save nothing: both would wait for Python's lock. When
    the plan is made, the thread that made it helps.
    """

    def __init__(self, out: Path, arriving: ArrivingParts, kinds: FileKinds) -> None:
        """Begin to write files in the folder `out`."""
        self._out = out
        self._arriving = arriving
        self._thread = ThreadPoolExecutor(1, "write")
        if kinds.many_rows:
            self._thread.submit(load_arrow, kinds.format)
        self._writers = list(_writers(out, arriving, kinds))
        self._writing = [self._thread.submit(write) for write in self._writers]

    def write(self) -> list[Path]:
        """Write the rest, and return the paths of all files. None has its name yet."""
        self._arriving.complete()
        for number in reversed(range(len(self._writers))):
            if self._writing[number].cancel():  # the thread has not begun it
                self._writing[number] = _done_here(self._writers[number])
        paths = [path for one in self._writing for path in one.result().paths]
        for path in paths:
            if path.is_dir():  # no file gets its name; found before the others have theirs
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return paths

    def write_summary(self, summary: dict[str, Any]) -> Path:
        """Write the summary, which gets its name with the other files."""
        data = json.dumps(summary, indent=2).encode() + b"\n"
        self._writing.append(
            _done_here(partial(_write_one, self._out, _SUMMARY, "json", lambda file: file.write(data)))
        )
        return self._writing[-1].result().paths[0]

    def finish(self) -> list[Path]:
        """Write the rest, give all files their names, and return their paths.

        Files of these results that an earlier run wrote in another format are removed.
        """
        paths = self.write()
        written = [one.result() for one in self._writing]
        for one in written:
            one.names.close()
        for one in written[: len(self._writers)]:
            for format_ in FORMATS:
                for path in existing_paths(self._out, one.name, format_):
                    if path not in paths:
                        path.unlink()
        sync_folder(self._out)
        return paths

    def close(self) -> None:
        """End the thread. Files that have no names yet are removed.

        An interrupt within an import can leave the lock of that import taken, and the thread then waits for it for
        ever: it is not waited for any longer than a file takes to end.
        """
        self._arriving.close()
        self._thread.shutdown(wait=False, cancel_futures=True)
        begun = [one for one in self._writing if not one.cancelled()]
        for one in wait(begun, _LONGEST_END_SECONDS).done:
            if one.exception() is None:
                one.result().names.__exit__(Stopped, Stopped(), None)


def _done_here(write: Callable[[], _Written]) -> Future[_Written]:
    done: Future[_Written] = Future()
    try:
        done.set_result(write())
    except BaseException as problem:  # `finish` raises it
        done.set_exception(problem)
    return done


@contextmanager
def result_files(out: Path, work: Path, kinds: FileKinds) -> Iterator[ResultFiles]:
    """Files of results, made of the parts that this process saves in the folder `work` from now on."""
    with arriving_parts(work) as arriving:
        files = ResultFiles(out, arriving, kinds)
        try:
            yield files
        finally:
            files.close()


@contextmanager
def results_folder(path: Path) -> Iterator[None]:
    """Make a folder of results, and keep other replays out of it. What killed replays have left there is removed.

    On a disk without locks nobody is kept out, and nothing is removed.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
        folder = os.open(path, os.O_RDONLY)
    except OSError as problem:
        raise InputRefused(
            f"{path}: cannot be written to ({problem.strerror}): name another folder with --out"
        ) from None
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUse(
                f"{path}: another replay writes its results there: wait for it, or name another folder with --out"
            ) from None
        except OSError:
            yield
            return
        remove_leftovers(path, _FILES)
        for work in path.glob(f"{_WORK}*"):
            shutil.rmtree(work, ignore_errors=True)
        yield
    finally:
        os.close(folder)


def kept_page_ids(out: Path) -> PageIds | None:
    """Return rules of page ids with the key that a folder of results keeps; None if it keeps none."""
    path = out / _KEY
    if not path.exists():
        return None
    try:
        with open(path, "rb") as file:
            text = file.read(4 * KEY_BYTES) if path.is_file() else b""
        return PageIds(key=bytes.fromhex(text.decode("ascii")))
    except OSError as problem:
        raise InputRefused(f"{path}: cannot be read ({problem.strerror}): name another folder with --out") from None
    except ValueError:
        raise InputRefused(
            f"{path}: it is no key of page ids: restore it, or remove it, and pages get other ids"
        ) from None


def keep_key(out: Path, page_ids: PageIds) -> None:
    """Keep the key of page ids in a folder of results, for the next replay into it. A public one is not kept."""
    if not page_ids.is_public:
        with path_in_errors(out / _KEY), whole_file(out / _KEY, is_secret=True) as file:
            file.write(page_ids.key.hex().encode() + b"\n")


@contextmanager
def work_folder(out: Path | None) -> Iterator[Path]:
    """Make a folder for the parts of results, in the folder of results if there is one, and remove it at the end.

    Otherwise it is among the temporary files, and what killed replays of this user have left there is removed.
    """
    with ExitStack() as temporary:
        if out is None:
            work = temporary.enter_context(temporary_folder(_TEMPORARY))
        else:
            work = Path(tempfile.mkdtemp(prefix=_WORK, dir=out))
        try:
            yield work
        finally:
            # An interrupted segment may still write on another thread: it no longer finds the folder.
            gone = work.with_name(f"{work.name}-gone")
            with suppress(OSError):
                os.rename(work, gone)
            shutil.rmtree(gone, ignore_errors=True)


@contextmanager
def path_in_errors(path: Path) -> Iterator[None]:
    """Add the path to errors of the system: an error for lack of space has none."""
    try:
        yield
    except OSError as problem:
        problem.filename = str(path)
        raise


def _writers(out: Path, arriving: ArrivingParts, kinds: FileKinds) -> Iterator[Callable[[], _Written]]:
    """Yield what writes each file, in the order in which they are returned."""
    results = [*_ALWAYS, *([_SITES] if kinds.sites else []), *(_PUBLICATIONS if kinds.publications else [])]

    def write_records(records: _Records) -> _Written:
        name, kind, packed = records.name, RESULTS[records.kinds[0]], partial(arriving.read, *records.kinds)
        with ExitStack() as names:
            names.enter_context(path_in_errors(out / f"{name}.{kinds.format}"))
            paths = names.enter_context(written_result(out, name, kinds.format, kind, packed, kinds.parts))
            return _Written(name, paths, names.pop_all())

    for records in results:
        yield partial(write_records, records)

    format_, read, write_one = kinds.format, arriving.read, partial(_write_one, out)
    yield partial(write_one, _REJECTS, format_, lambda file: write_rejects(file, format_, read(outputs.REJECTS)))
    if kinds.publications:
        yield partial(write_one, _TOMBSTONES, "jsonl", lambda file: write_tombstones(file, read(outputs.TOMBSTONES)))


def _write_one(out: Path, name: str, format_: str, write: Callable[[BinaryIO], object]) -> _Written:
    path = out / f"{name}.{format_}"
    with ExitStack() as names:
        names.enter_context(path_in_errors(path))
        (beside,) = names.enter_context(divided_file(out, name, format_, 1))
        with synced_file(beside) as file:
            write(file)
        return _Written(name, [path], names.pop_all())
