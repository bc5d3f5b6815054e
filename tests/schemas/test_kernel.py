"""Kernels are cached on disk, and compiled again when their sources change."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opicflow.schemas import kernel

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
"""Makes numba find a folder read-only: for root, every folder is writable."""


class Project:
    """`kernel.py` with two kernels of one file each, the second of which calls the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "opicflow" / "pipelines"
        self.home = folder / "home"
        self.callee = self.package / "ledger" / "callee.py"
        self.callee.parent.mkdir(parents=True)
        self.home.mkdir()
        (self.package / "__init__.py").touch()
        schemas = folder / "opicflow" / "schemas"
        schemas.mkdir()
        (schemas / "__init__.py").touch()
        shutil.copy(kernel.__file__, schemas)
        (self.callee.parent / "__init__.py").touch()
        self.callee.write_text(CALLEE)
        (self.callee.parent / "caller.py").write_text(CALLER)

    def run(self, before: str = "", **environment: str | None) -> list[str]:
        """Run the second kernel in another process. Returns its result, its origin, and numba's cache folder."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "XDG"))}
        changes = {
            "HOME": str(self.home),
            "PYTHONPATH": str(self.folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        }
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", before + RUN],
            env={name: value for name, value in {**kept, **changes}.items() if value is not None},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().split(" | ")

    def cached(self, folder: Path) -> list[Path]:
        """Return the folders of cached kernels below a folder."""
        return sorted(path for path in folder.glob("opicflow-*") if list(path.rglob("*.nbc")))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_kernel_is_loaded_from_disk_until_a_callee_is_edited(project: Project) -> None:
    assert project.run() == ["3", "compiled", "none"]
    assert project.run() == ["3", "from disk", "none"]
    assert len(project.cached(project.package / "__pycache__")) == 1
    project.callee.write_text(CALLEE.replace("x + 1", "x + 10"))  # the caller's own file does not change
    assert project.run()[:2] == ["21", "compiled"]
    assert project.run()[:2] == ["21", "from disk"]
    project.callee.write_text(CALLEE)
    assert project.run()[:2] == ["3", "from disk"]
    assert len(project.cached(project.package / "__pycache__")) == 2


def test_a_folder_chosen_for_numba_is_used(project: Project, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    assert project.run(NUMBA_CACHE_DIR=str(chosen)) == ["3", "compiled", str(chosen)]
    assert len(project.cached(chosen)) == 1
    assert not (project.package / "__pycache__").exists()
    project.callee.write_text(CALLEE.replace("x + 1", "x - 1"))
    assert project.run(NUMBA_CACHE_DIR=str(chosen))[0] == "-1"
    assert len(project.cached(chosen)) == 2


def test_sources_that_cannot_be_written_beside_are_cached_at_home(project: Project) -> None:
    (project.package / "__pycache__").touch()  # a file: not even root can create a folder there
    assert project.run()[:2] == ["3", "compiled"]
    assert project.run()[:2] == ["3", "from disk"]
    assert len(project.cached(project.home / ".cache")) == 1


def test_a_read_only_cache_folder_is_not_used(project: Project) -> None:
    """An image built by root has such a folder. numba alone would use another cache folder."""
    assert project.run()[:2] == ["3", "compiled"]
    others = project.package / "__pycache__"
    assert project.run(READ_ONLY.format(str(others)))[:2] == ["3", "compiled"]
    assert project.run(READ_ONLY.format(str(others)))[:2] == ["3", "from disk"]
    assert len(project.cached(project.home / ".cache")) == 1
    nowhere = READ_ONLY.format(str(project.folder))
    assert project.run(nowhere)[:2] == ["3", "compiled"]


def test_kernels_work_without_a_home_folder(project: Project) -> None:
    assert project.run(HOMELESS, HOME=None)[:2] == ["3", "compiled"]
    assert project.run(HOMELESS, HOME=None)[:2] == ["3", "from disk"]


@pytest.mark.parametrize("environment", [{"HOME": None}, {"HOME": os.devnull}, {"NUMBA_CACHE_DIR": os.devnull}])
def test_without_writable_folders_kernels_are_compiled_in_every_process(
    project: Project, environment: dict[str, str | None]
) -> None:
    (project.package / "__pycache__").touch()
    before = HOMELESS if environment == {"HOME": None} else ""
    assert project.run(before, **environment)[:2] == ["3", "compiled"]


@pytest.mark.parametrize("root", kernel._MADE_OF)
def test_all_kernels_of_a_root_have_one_cache_folder(root: str) -> None:
    folder = Path(kernel._cache_folder(root, ""))
    assert folder.name.startswith("opicflow-")
    assert kernel._cache_folder(root, "") == str(folder)


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
