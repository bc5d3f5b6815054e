"""The distribution has the right files, and the wheel alone works, far from the checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from support.paths import TOP

ROOTS = ["pipelines", "schemas", "connectors"]

# Run in an empty folder, with the wheel installed: each package is imported, and used in its smallest form.
FIRST_USE = """
import json, sys
import numpy as np
import opicflow.connectors
import opicflow.pipelines.ranks.graph
import opicflow.pipelines.ledger
import opicflow.pipelines.lab.web
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.schemas.pages import page_id

two_pages = Graph.from_links(2, np.array([0, 1]), np.array([1, 0]))
print(json.dumps({
    "files": [module.__file__ for name, module in sys.modules.items() if name.startswith("opicflow.")],
    "page_id": page_id("https://example.org/"),
    "ranks": pagerank(two_pages).values.tolist(),
}))
"""


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, text=True, capture_output=True, env={**os.environ, **variables}
    )
    assert done.returncode == 0, f"{command[0]} failed\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(source: Path, *what: str, to: Path) -> Path:
    """Build the sdist or wheel of `source` with the installed setuptools, so without a network."""
    run(sys.executable, "-m", "build", "--no-isolation", *what, "--outdir", to, source, cwd=source)
    (built,) = to.iterdir()
    return built


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def needed(requirements: Iterable[str], extra: str = "") -> dict[str, Distribution]:
    """The installed distributions that fulfil `requirements`, and theirs, by canonical name."""
    found: dict[str, Distribution] = {}
    waiting = [(Requirement(text), extra) for text in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        if name not in found:
            found[name] = distribution(name)
            waiting += [(Requirement(text), "") for text in found[name].requires or []]
    return found


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the distribution is made from: building leaves files behind."""
    copy = tmp_path_factory.mktemp("source")
    for name in ROOTS:
        shutil.copytree(TOP / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ["tests", "benchmarks", "examples"]:
        (copy / folder).mkdir()
        (copy / folder / "__init__.py").touch()
    for name in ["setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md"]:
        shutil.copy(TOP / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(source, "--wheel", to=tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(source, "--sdist", to=tmp_path_factory.mktemp("sdist"))


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(source: Path, wheel: Path) -> None:
    packaged = {name for name in contents(wheel) if ".dist-info/" not in name}
    files = (file for root in ROOTS for file in (source / root).rglob("*") if file.is_file())
    assert packaged == {f"opicflow/{file.relative_to(source).as_posix()}" for file in files}


def test_the_sdist_builds_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "tarfile", "-e", sdist, tmp_path / "unpacked", cwd=tmp_path)
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert contents(build(unpacked, "--wheel", to=tmp_path / "wheel")) == contents(wheel)


@pytest.mark.slow
def test_the_wheel_alone_works_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    site = Path(run(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=tmp_path).strip())
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=tmp_path)

    # Only the packages that the wheel itself requires, as links to those installed here: no network is needed.
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    asked_for = [line.split(": ")[1] for line in lines if line.startswith("Requires-Dist: ")]
    for installed in needed(asked_for).values():
        for name in {file.parts[0] for file in installed.files or []} - {"..", "__pycache__"}:
            (site / name).symlink_to(Path(str(installed.locate_file(name))))
    run(*pip, "check", cwd=tmp_path)

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    cache = tmp_path / "cache"
    result = json.loads(run(python, "-I", "-c", FIRST_USE, cwd=elsewhere, XDG_CACHE_HOME=str(cache)))
    assert all(Path(file).is_relative_to(site) for file in result["files"])
    assert result["page_id"] == 0xAE69079B9F754A7F
    assert result["ranks"] == pytest.approx([0.5, 0.5])
    assert list(cache.glob("opicflow/kernels/*/*.kernel")), "compiled kernels are kept for the next process"


def test_everything_that_setup_installs_has_its_version_in_constraints() -> None:
    lines = (TOP / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    here = {canonicalize_name(pin.name): pin for pin in pins if not pin.marker or pin.marker.evaluate()}
    installed = needed(distribution("opicflow").requires or [], extra="dev")
    assert {name: version.version for name, version in installed.items() if name not in here} == {}
    assert {name for name in here if name not in installed} == set(), "pinned, but not needed"


def test_make_demo_installs_with_hashes_what_the_dashboard_and_a_build_need() -> None:
    lines = (TOP / "hashes.txt").read_text("utf-8").splitlines()
    hashed = {canonicalize_name(line.partition("==")[0]) for line in lines if not line.startswith(" ")}
    assert needed([*(distribution("opicflow").requires or []), "setuptools"], extra="serve").keys() <= hashed


@pytest.mark.parametrize("library", ["apache-beam", "kafka-python", "numba"])
def test_a_library_whose_private_parts_are_used_is_bounded_by_the_version_that_is_tested(library: str) -> None:
    named = re.search(rf'"({library}[^"]+)"', (TOP / "setup.py").read_text(encoding="utf-8"))
    assert named is not None
    allowed, tested = Requirement(named[1]).specifier, Version(version(library))
    assert allowed.contains(tested)
    assert not allowed.contains(f"{tested.major}.{tested.minor + 1}") and not allowed.contains(f"{tested.major + 1}.0")
