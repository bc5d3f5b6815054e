"""The limits that SECURITY.md states are those of the code, and a deployment is closed to others by default."""

from __future__ import annotations

import re
from importlib import import_module

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.paths import TOP

ROW = re.compile(
    r"^\| (?P<what>[^|]+) \| (?P<most>[^|]+) \| [^|]+ \| \[(?P<name>\w+)\]\((?P<file>\S+)\.py\) \|$", re.MULTILINE
)
HASHES = ("hashes.txt", "hashes-of-tools.txt")
LIMITS = [found.groupdict() for found in ROW.finditer((TOP / "SECURITY.md").read_text("utf-8"))]
HOUR_MS, DAY_SECONDS = 3_600_000, 86_400


@pytest.mark.parametrize("limit", LIMITS, ids=[f"{limit['file']}-{limit['name']}" for limit in LIMITS])
def test_a_limit_is_that_of_the_code(limit: dict[str, str]) -> None:
    value = getattr(import_module(f"opicflow.{limit['file'].replace('/', '.')}"), limit["name"])
    unit = {"hours": HOUR_MS, "days": DAY_SECONDS}.get(limit["what"].split()[0], 1)
    stated = re.match(r"[0-9,]+", limit["most"])
    assert stated is not None and int(stated[0].replace(",", "")) * unit == value


def test_the_limits_are_found() -> None:
    assert {"MOST_EVENT_BYTES", "MOST_LINKS", "LONGEST_URL", "MOST_AHEAD_MS"} <= {limit["name"] for limit in LIMITS}


def test_no_setting_makes_a_service_listen_on_all_addresses() -> None:
    files = [file for file in (TOP / "deploy").rglob("*") if file.suffix in (".py", ".yaml", ".java", ".xml", "")]
    texts = {file: file.read_text("utf-8") for file in files if file.is_file()}
    assert [file for file, text in texts.items() if "0.0.0.0" in text] == []
    settings = dict(re.findall(r"^(\S+): +([^#\s]+)", texts[TOP / "deploy/standalone/config.yaml"], re.MULTILINE))
    for name in ("jobmanager.bind-host", "rest.bind-address", "taskmanager.bind-host"):
        assert settings[name] in ("127.0.0.1", settings["jobmanager.rpc.address"])
    published = re.findall(r"ports: \[(.*)\]", texts[TOP / "deploy/compose.yaml"])
    assert published and all(port.startswith('"127.0.0.1:') for port in published)


def test_the_image_has_an_exact_base_and_runs_as_a_user() -> None:
    lines = (TOP / "deploy/container/Dockerfile").read_text("utf-8").splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users and users[-1] not in ("root", "0")
    bases = {name: base for name, base in re.findall(r"^ARG (\w+)=(\S+)$", "\n".join(lines), re.MULTILINE)}
    named = [line.split()[1] for line in lines if line.startswith("FROM ")]
    images = [bases.get(name.strip("${}"), name) for name in named]
    images += re.findall(r"image: (\S+)", (TOP / "deploy/compose.yaml").read_text("utf-8"))
    assert [image for image in images if not re.search(r":\d+\.\d+\.\d+", image)] == []


def test_an_image_gets_the_files_that_its_dockerfile_names_and_no_others() -> None:
    lines = (TOP / "deploy/container/Dockerfile").read_text("utf-8").splitlines()
    copied = {one for line in lines if line.startswith(("COPY ", "ADD ")) for one in line.split()[1:-1]}
    assert [one for one in copied if not (TOP / one).exists() or one in (".", "./")] == []
    patterns = [line for line in (TOP / ".dockerignore").read_text("utf-8").splitlines() if not line.startswith("#")]
    assert patterns[0] == "*" and {one[1:] for one in patterns if one.startswith("!")} == copied


def test_every_version_that_make_installs_has_hashes_and_is_that_of_the_constraints() -> None:
    joined = [line for name in HASHES for line in (TOP / name).read_text("utf-8").replace("\\\n", " ").splitlines()]
    hashed = [line.partition("--hash=") for line in joined]
    assert [line for line, _, digests in hashed if not re.match(r"sha256:[0-9a-f]{64}\b", digests)] == []
    plain = [line.partition("#")[0].strip() for line in (TOP / "constraints.txt").read_text("utf-8").splitlines()]
    for version in ("3.10", "3.11", "3.12", "3.13"):
        python = {"python_version": version, "python_full_version": f"{version}.1"}
        assert installed([line for line, _, _ in hashed], python) == installed(plain, python)


def installed(lines: list[str], python: dict[str, str]) -> set[tuple[str, str]]:
    """Return the names and versions of the lines whose marker fits."""
    requirements = [Requirement(line) for line in lines if line]
    fit = [one for one in requirements if one.marker is None or one.marker.evaluate(python)]
    return {(canonicalize_name(one.name), str(one.specifier)) for one in fit}
