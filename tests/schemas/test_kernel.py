"""Kernels are cached on disk, compiled again when their sources change, and compiled by one process at a time."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from threading import Timer

import pytest

from opicflow.schemas import errors, kernel, kernel_cache, kernel_parts

CALLEE = """
from opicflow.schemas.kernel import kernel

@kernel
def raised(x):
    return x + 1
"""
CALLER = """
from opicflow.schemas.kernel import kernel
from opicflow.pipelines.ledger.callee import raised

@kernel
def twice_raised(x):
    return raised(raised(x))
"""
RUN = """
from opicflow.pipelines.ledger.caller import twice_raised
import numba
result = twice_raised(1)
print(result, "from disk" if twice_raised.stats.cache_hits else "compiled", numba.config.CACHE_DIR or "none", sep=" | ")
"""
HOMELESS = """
import pwd
def no_entry(uid):
    raise KeyError(uid)
pwd.getpwuid = no_entry
"""
READ_ONLY = """
import tempfile
temporary_file = tempfile.TemporaryFile
def read_only(*arguments, dir=None, **options):
    if str(dir).startswith({!r}):
        raise PermissionError(13, "Permission denied", str(dir))
    return temporary_file(*arguments, dir=dir, **options)
tempfile.TemporaryFile = read_only
"""
"""Makes a folder read-only: for root, every folder is writable."""
PAUSED = """
from numba.core import event
class Pause(event.Listener):
    def on_start(self, happened):
        print("compiling", flush=True)
        input()
    def on_end(self, happened):
        pass
event.register("numba:compile", Pause())
"""
"""Waits for a line before each kernel is compiled, outer kernels first."""
WATCHED = """
import fcntl
get_lock = fcntl.lockf
def get_lock_and_tell(*arguments):
    print("locking", flush=True)
    get_lock(*arguments)
    print("locked", flush=True)
fcntl.lockf = get_lock_and_tell
"""
REFUSED = """
from opicflow.pipelines.ledger.caller import twice_raised
import numba
try:
    twice_raised("x")
except numba.TypingError:
    print("refused", flush=True)
input()
"""
THREADS = """
from concurrent.futures import ThreadPoolExecutor
from opicflow.pipelines.ledger import callee, caller
kernels = {} * 4
with ThreadPoolExecutor(8) as threads:
    print(sum(threads.map(lambda kernel: kernel(1), kernels)))
"""
CIRCLE = """
from pathlib import Path
from unittest.mock import Mock
from opicflow.schemas.kernel_cache import KernelCache
class Empty(KernelCache):
    def _load(self, signature, target):
        return None
mine, other = (Empty(name, Path()) for name in {!r})
mine.load_overload((), Mock())
print("has one", flush=True)
input()
print("wants both", flush=True)
other.load_overload((), Mock())
print("goes on", flush=True)
"""


COLUMNS = """
from typing import Any, NamedTuple
import numpy as np
from opicflow.schemas.arrays import ColumnTuple
from opicflow.schemas.kernel import inlined_kernel, kernel, lean_kernel

@ColumnTuple.register
class Counts(NamedTuple):
    by_page: Any
    total: Any

@ColumnTuple.register
class Both(NamedTuple):
    counts: Counts
    step: Any

@inlined_kernel
def step_of(both, row):
    return both.step[row]

@lean_kernel
def add(counts, row, amount, twice):
    if twice:
        amount = 2 * amount
    counts.by_page[row] += amount
    counts.total[0, 0] += amount

@lean_kernel
def add_all(both, rows):
    for row in range(rows):
        add(both.counts, row, step_of(both, row), False)
        add(both.counts, row, 1, True)

@kernel
def doubled(counts):
    return 2 * counts.by_page + counts.total[0, 0]

counts = Counts(np.zeros(3, np.int64), np.zeros((1, 1), np.int64))
both = Both(counts, np.array([10, 20, 30]))
"""
"""Kernels that pass columns on to each other, those that make arrays among them."""
UNUSED_CALL = """
from opicflow.schemas.kernel import lean_kernel

@lean_kernel
def lowest(x):
    return x - 1 if x > 5 else lowest_of_all(x)

@lean_kernel
def lowest_of_all(x):
    total = 0
    for i in range(x):
        total += i * x
    return total

@lean_kernel
def never(x):
    if False:
        return lowest_of_all(x)
    return x

@lean_kernel
def both(x):
    return never(x) + lowest(x)
"""
"""The first kernel that `both` calls names another, but does not need it. The second one needs it."""


class Project:
    """`kernel.py` with two kernels of one file each, the second of which calls the first."""

    def __init__(self, folder: Path, home: Path | None = None) -> None:
        self.folder = folder
        self.package = folder / "opicflow" / "pipelines"
        self.home = home or folder / "home"
        self.callee = self.package / "ledger" / "callee.py"
        self.callee.parent.mkdir(parents=True)
        self.home.mkdir(exist_ok=True)
        (self.package / "__init__.py").touch()
        schemas = folder / "opicflow" / "schemas"
        schemas.mkdir()
        (schemas / "__init__.py").touch()
        shutil.copy(kernel.__file__, schemas)
        shutil.copy(kernel_cache.__file__, schemas)
        shutil.copy(kernel_parts.__file__, schemas)
        shutil.copy(errors.__file__, schemas)
        (self.callee.parent / "__init__.py").touch()
        self.callee.write_text(CALLEE)
        (self.callee.parent / "caller.py").write_text(CALLER)

    def run(self, before: str = "", **environment: str | None) -> list[str]:
        """Run the second kernel in another process. Returns its result, its origin, and numba's cache folder."""
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", before + RUN],
            env=self._environment(environment),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().split(" | ")

    def print(self, script: str, **environment: str | None) -> str:
        """Run a script that may import `ledger/columns.py` and `ledger/unused_call.py`. Returns its output."""
        for name, text in (("columns", COLUMNS), ("unused_call", UNUSED_CALL)):
            (self.callee.parent / f"{name}.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", script],
            env=self._environment(environment),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.stdout.strip() + "".join(done.stderr.strip().splitlines()[-1:])

    @contextmanager
    def start(self, script: str = RUN) -> Iterator[subprocess.Popen[str]]:
        """Start another process that reads and writes lines. It is killed at the end, or after two minutes."""
        command = [sys.executable, "-W", "error", "-c", script]
        with subprocess.Popen(
            command, env=self._environment({}), cwd=self.folder, stdin=PIPE, stdout=PIPE, text=True
        ) as process:
            limit = Timer(120, process.kill)
            limit.start()
            try:
                yield process
            finally:
                limit.cancel()
                process.kill()

    def _environment(self, changes: dict[str, str | None]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "XDG"))}
        ours = {"HOME": str(self.home), "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        return {name: value for name, value in {**kept, **ours, **changes}.items() if value is not None}

    def cached(self, folder: Path | None = None) -> list[Path]:
        """Return the folders with kernels in a folder: by default in the user's cache."""
        return sorted(path for path in (folder or self.own).glob("opicflow-*") if list(path.glob("*.kernel")))

    @property
    def own(self) -> Path:
        """The cache of the user."""
        return self.home / ".cache" / "opicflow" / "kernels"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.slow
def test_a_kernel_is_loaded_from_disk_until_a_callee_is_edited(project: Project) -> None:
    assert project.run() == ["3", "compiled", "none"]
    assert project.run() == ["3", "from disk", "none"]
    assert len(project.cached()) == 1
    project.callee.write_text(CALLEE.replace("x + 1", "x + 10"))  # the caller's own file does not change
    assert project.run()[:2] == ["21", "compiled"]
    assert project.run()[:2] == ["21", "from disk"]
    project.callee.write_text(CALLEE)
    assert project.run()[:2] == ["3", "from disk"]
    assert len(project.cached()) == 2


ADD_ALL = """
from opicflow.pipelines.ledger.columns import *
add_all(both, 3)
print(counts.by_page.tolist(), counts.total.tolist(), doubled(counts).tolist())
"""


@pytest.mark.slow
@pytest.mark.parametrize("compiles", ["0", "1"])
def test_columns_are_the_same_arrays_in_all_kernels_that_get_them(project: Project, compiles: str) -> None:
    """With kernels as Python functions, and compiled; then from disk."""
    added = "[12, 22, 32] [[66]] [90, 110, 130]"
    for _ in range(2):
        assert project.print(ADD_ALL, NUMBA_DISABLE_JIT=compiles) == added


@pytest.mark.slow
def test_a_row_beyond_a_column_is_found_where_bounds_are_checked(project: Project) -> None:
    """In a kernel that a kernel calls, too."""
    script = ADD_ALL.replace("add_all(both, 3)", "add_all(both, 4)")
    assert project.print(script, NUMBA_BOUNDSCHECK="1").startswith("IndexError")


def test_a_kernel_is_one_part_for_all_constants(project: Project) -> None:
    script = "from opicflow.pipelines.ledger.columns import *; add_all(both, 3); print(len(add.part().overloads))"
    assert project.print(script) == "1"


def test_a_kernel_that_one_caller_does_not_need_is_there_for_the_other(project: Project) -> None:
    script = "from opicflow.pipelines.ledger.unused_call import both; print(both(4), both(9))"
    assert project.print(script) == f"{4 + 4 * 6} {9 + 8}"


@pytest.mark.slow
def test_a_folder_chosen_for_numba_is_used(project: Project, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    assert project.run(NUMBA_CACHE_DIR=str(chosen)) == ["3", "compiled", str(chosen)]
    assert len(project.cached(chosen)) == 1
    assert not (project.package / "__pycache__").exists() and not project.cached()
    project.callee.write_text(CALLEE.replace("x + 1", "x - 1"))
    assert project.run(NUMBA_CACHE_DIR=str(chosen))[0] == "-1"
    assert len(project.cached(chosen)) == 2


@pytest.mark.slow
def test_installations_of_one_user_share_their_kernels(project: Project, tmp_path: Path) -> None:
    other = Project(tmp_path / "other", project.home)
    assert project.run()[:2] == ["3", "compiled"]
    assert other.run()[:2] == ["3", "from disk"]
    other.callee.write_text(CALLEE.replace("x + 1", "x + 2"))
    assert other.run()[:2] == ["5", "compiled"]
    assert project.run()[:2] == ["3", "from disk"]


@pytest.mark.slow
def test_the_cache_of_a_user_may_be_elsewhere(project: Project, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    assert project.run(XDG_CACHE_HOME=str(chosen))[:2] == ["3", "compiled"]
    assert project.run(XDG_CACHE_HOME=str(chosen))[:2] == ["3", "from disk"]
    assert len(project.cached(chosen / "opicflow" / "kernels")) == 1 and not project.own.exists()


@pytest.mark.parametrize("mode", [0o702, *(pytest.param(mode, marks=pytest.mark.slow) for mode in (0o720, 0o777))])
def test_code_that_others_may_write_is_not_run(project: Project, mode: int) -> None:
    """The kernels are then beside the sources, which they cannot be worse than."""
    assert project.run()[:2] == ["3", "compiled"]
    (folder,) = project.cached()
    assert folder.stat().st_mode & 0o777 == project.own.stat().st_mode & 0o777 == 0o700
    for one in (folder, project.own):
        one.chmod(mode)
        assert project.run()[:2] == ["3", "compiled"]
        assert project.run()[:2] == ["3", "from disk"]
        assert len(project.cached(project.package / "__pycache__")) == 1
        shutil.rmtree(project.package / "__pycache__")
        one.chmod(0o700)
    assert project.run()[:2] == ["3", "from disk"]


@pytest.mark.parametrize("mode", [0o702, 0o720, 0o1777])
@pytest.mark.parametrize("is_kernels", [False, True])
def test_a_chosen_folder_that_others_may_write_is_refused(
    project: Project, tmp_path: Path, mode: int, is_kernels: bool
) -> None:
    chosen = tmp_path / "chosen"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_CACHE_DIR", str(chosen))
        kernel._cache_folder.cache_clear()
        folder = kernel._cache_folder("schemas")
        assert folder is not None and folder.parent == chosen and kernel_cache.is_private(chosen)
        (folder if is_kernels else chosen).chmod(mode)
        for _ in range(2):
            kernel._cache_folder.cache_clear()
            with pytest.raises(
                kernel.KernelsRefused, match=r"NUMBA_CACHE_DIR: .*: other users can write there"
            ) as found:
                kernel.is_compiled("schemas")
            assert len(str(found.value).splitlines()) == 1
    kernel._cache_folder.cache_clear()


def test_a_command_ends_in_one_line_where_others_may_write_its_kernels(tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    chosen.chmod(0o777)
    log = tmp_path / "log.jsonl"
    log.write_text('{"url": "https://a.example/", "links": []}\n')
    command = [sys.executable, "-m", "opicflow.pipelines.cli", "replay", str(log), "--runner", "local"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(chosen)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert (done.returncode, done.stdout, list(chosen.iterdir())) == (2, "", [])
    assert done.stderr.startswith(f"opicflow: NUMBA_CACHE_DIR: {chosen}: other users can write there")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_kernels_are_beside_the_sources_where_the_user_has_no_cache(project: Project) -> None:
    (project.home / ".cache").touch()  # a file: not even root can create a folder there
    assert project.run()[:2] == ["3", "compiled"]
    assert project.run()[:2] == ["3", "from disk"]
    assert len(project.cached(project.package / "__pycache__")) == 1


@pytest.mark.slow
def test_a_folder_that_was_chosen_may_be_read_only(project: Project, tmp_path: Path) -> None:
    """Those of an image were compiled when it was built."""
    chosen = str(tmp_path / "chosen")
    assert project.run(NUMBA_CACHE_DIR=chosen)[:2] == ["3", "compiled"]
    assert project.run(READ_ONLY.format(chosen), NUMBA_CACHE_DIR=chosen)[:2] == ["3", "from disk"]
    nowhere = READ_ONLY.format(str(project.folder))
    assert project.run(nowhere)[:2] == ["3", "compiled"]
    assert project.run(nowhere)[:2] == ["3", "compiled"]


def test_the_newest_kernels_are_kept(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder for each edit would fill the disk."""
    monkeypatch.setattr(kernel, "_MOST_KEPT", 2)
    for number in range(4):
        folder = project.own / f"opicflow-{number}"
        folder.mkdir(parents=True)
        os.utime(folder, (number, number))
    kernel._remove_old(project.own)
    assert sorted(path.name for path in project.own.iterdir()) == ["opicflow-2", "opicflow-3"]


@pytest.mark.slow
def test_a_damaged_kernel_is_compiled_again(project: Project) -> None:
    assert project.run()[:2] == ["3", "compiled"]
    (folder,) = project.cached()
    for file in folder.glob("*.kernel"):
        file.write_bytes(file.read_bytes()[:100])
    assert project.run()[:2] == ["3", "compiled"]
    assert project.run()[:2] == ["3", "from disk"]


@pytest.mark.slow
def test_kernels_work_without_a_home_folder(project: Project) -> None:
    assert project.run(HOMELESS, HOME=None)[:2] == ["3", "compiled"]
    assert project.run(HOMELESS, HOME=None)[:2] == ["3", "from disk"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [
        {"HOME": None},
        *(pytest.param(one, marks=pytest.mark.soak) for one in ({"HOME": os.devnull}, {"NUMBA_CACHE_DIR": os.devnull})),
    ],
)
def test_without_writable_folders_kernels_are_compiled_in_every_process(
    project: Project, environment: dict[str, str | None]
) -> None:
    (project.package / "__pycache__").touch()
    (project.home / ".cache").touch()
    before = HOMELESS if environment == {"HOME": None} else ""
    assert project.run(before, **environment)[:2] == ["3", "compiled"]


def resume(process: subprocess.Popen[str]) -> None:
    """Let a process go on that waits for a line."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def read_line(process: subprocess.Popen[str]) -> str:
    """Return the next line of a process; empty if it ended, or was killed after two minutes."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.slow
def test_a_process_waits_while_another_compiles_a_kernel_and_then_loads_it(project: Project) -> None:
    with project.start(PAUSED + RUN) as first, project.start(WATCHED + "input()" + RUN) as second:
        assert read_line(first) == "compiling"
        resume(second)
        assert read_line(second) == "locking"  # and not yet "locked": the first has the lock
        resume(first)
        assert read_line(first) == "compiling"  # the callee
        resume(first)
        assert read_line(first).startswith("3 | compiled")
        assert [read_line(second), read_line(second)] == ["locked", "3 | from disk | none"]


@pytest.mark.slow
def test_the_death_of_a_process_that_compiles_lets_others_compile(project: Project) -> None:
    with project.start(PAUSED + RUN) as first, project.start(WATCHED + "input()" + RUN) as second:
        assert read_line(first) == "compiling"
        resume(second)
        assert read_line(second) == "locking"
        first.kill()
        assert [read_line(second), read_line(second)] == ["locked", "3 | compiled | none"]


@pytest.mark.slow
def test_a_kernel_that_cannot_be_compiled_keeps_no_lock(project: Project) -> None:
    with project.start(REFUSED) as first:
        assert read_line(first) == "refused"
        assert project.run()[:2] == ["3", "compiled"]


@pytest.mark.slow
def test_threads_of_several_processes_may_call_nested_kernels_in_any_order(project: Project) -> None:
    kernels = "[callee.raised, caller.twice_raised]", "[caller.twice_raised, callee.raised]"
    with project.start(THREADS.format(kernels[0])) as first, project.start(THREADS.format(kernels[1])) as second:
        assert [read_line(first), read_line(second)] == ["20", "20"]  # of eight calls each


def test_processes_that_would_wait_in_a_circle_go_on_without_a_lock(project: Project) -> None:
    with project.start(CIRCLE.format("ab")) as first, project.start(CIRCLE.format("ba")) as second:
        assert [read_line(first), read_line(second)] == ["has one", "has one"]
        resume(first)
        resume(second)
        assert [read_line(first), read_line(second)] == ["wants both", "wants both"]
        assert [read_line(first), read_line(second)] == ["goes on", "goes on"]


@pytest.mark.parametrize("root", kernel._MADE_OF)
def test_all_kernels_of_a_root_have_one_cache_folder(root: str) -> None:
    folder = kernel._cache_folder(root)
    assert folder is not None and folder.name.startswith(f"opicflow-{root}-")
    assert kernel._cache_folder(root) == folder


@pytest.mark.parametrize("root", kernel._MADE_OF)
def test_every_folder_with_kernels_is_part_of_the_cache_name(root: str) -> None:
    """Kernels of a folder that is not listed would not be compiled again after an upgrade."""
    top = Path(kernel.__file__).parent.parent
    with_kernels = {
        path.parent.relative_to(top).as_posix()
        for path in (top / root).rglob("*.py")
        if re.search(r"schemas\.kernel import [^\n]*kernel", path.read_text())
    }
    read = kernel._MADE_OF[root]
    assert with_kernels <= set(read)
    below = {path.parent.relative_to(top).as_posix() for name in read for path in (top / name).glob("*/*.py")}
    assert below <= set(read)  # folders are read without their subfolders
