"""The limits that are stated are those of the code, and a deployment is closed to others by default."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from fractions import Fraction
from importlib import import_module

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.services.instance import HOST
from opicflow.connectors.files import avro_container, html_links, log_reader, opening, warc, warc_records, zip_members
from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES
from opicflow.pipelines.stages.decode import _MOST_AHEAD_BYTES
from opicflow.schemas import crawl_events, writer_schema
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES, Reason
from opicflow.schemas.url_forms import LONGEST_URL
from support.paths import TOP

HASHES = ("hashes.txt", "hashes-of-tools.txt")
HOUR_MS, DAY_SECONDS = 3_600_000, 86_400


def limits_in(page: str) -> list[list[str]]:
    """Return the rows of the tables below `Limits`, without their heads."""
    text = (TOP / page).read_text("utf-8").partition("\n## Limits\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| what ")]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]


def numbers_in(text: str) -> list[float]:
    found = re.findall(r"[0-9](?:[0-9,]*[0-9])?(?:/[0-9]+)?", text)
    return [float(Fraction(one.replace(",", ""))) for one in found]


LIMITS = limits_in("SECURITY.md")


@pytest.mark.parametrize("limit", LIMITS, ids=[limit[0] for limit in LIMITS])
def test_a_limit_is_that_of_the_code(limit: list[str]) -> None:
    what, most, above, where = limit
    names = re.findall(r"\[(\w+)\]\((\S+)\.py\)", where)
    in_code = [getattr(import_module(f"opicflow.{file.replace('/', '.')}"), name) for name, file in names]
    unit = what.split()[0]
    stated = [number * {"hours": HOUR_MS, "days": DAY_SECONDS}.get(unit, 1) for number in numbers_in(most)]
    if unit == "years":
        first, last = map(int, stated)
        stated = [1000 * datetime(year, 1, 1, tzinfo=timezone.utc).timestamp() for year in (first, last + 1)]
    assert stated == in_code != []
    assert set(re.findall(r"`([a-z-]+)`", above)) <= {reason.value for reason in Reason}


def test_the_limits_of_readers_are_those_of_the_code() -> None:
    expected = [
        [crawl_events.MOST_LINKS],
        [crawl_events.MOST_REDIRECTS],
        [MOST_EVENT_BYTES],
        [LONGEST_URL],
        [MOST_REJECTED_BYTES],
        [crawl_events.MOST_LISTED],
        [_MOST_AHEAD_BYTES],
        [opening._MOST_TRIES],
        [zip_members.MOST_MEMBERS],
        [warc_records.MOST_HEAD_BYTES],
        [warc_records.MOST_SEARCHED_BYTES],
        [warc.MOST_HEAD_BYTES],
        [warc.MOST_CODINGS],
        [warc.MOST_EXPANSION, warc.ALWAYS_DECOMPRESSED_BYTES, MOST_EVENT_BYTES],
        [html_links.MOST_JOINED_LINK_BYTES],
        [html_links.MOST_JOINED_LINK_BYTES],
        [html_links.MOST_JOINED_BYTES],
        [MOST_EVENT_BYTES],
        [html_links._MOST_SNIFFED_BYTES] * 2,
        [warc._MOST_DATE_BYTES],
        [warc.MOST_JSON_MARKS],
        [1024],  # of orjson: tests/connectors/files/test_hostile_archives.py
        [writer_schema.MOST_SCHEMA_VALUES],
        [writer_schema.MOST_SCHEMA_DEPTH],
        [writer_schema.ALWAYS_ALLOWED_VALUES, writer_schema.MOST_VALUES_PER_BYTE],
        [],
        [avro_container.MOST_BLOCK_BYTES],
        [avro_container._MOST_XZ_MEMORY_BYTES],
    ]
    limits = limits_in("docs/reference/formats.md")
    assert [numbers_in(most) for _, most, _ in limits] == expected
    for _, _, above in limits:
        assert set(re.findall(r"`([a-z-]+)`", above)) <= {reason.value for reason in Reason}
    waiting = [log_reader._BATCH_ITEMS, log_reader._BATCH_LINKS, log_reader._BATCH_TEXT_BYTES]
    text = (TOP / "docs/reference/formats.md").read_text("utf-8")
    assert numbers_in(text[text.index("have at most 500 records") :].partition(",\nand")[0])[:3] == waiting
    assert log_reader.BATCH_BYTES == 4 << 20 and "A batch is 4 MiB of a file" in text


def test_no_setting_makes_a_service_listen_on_all_addresses() -> None:
    files = [file for file in (TOP / "deploy").rglob("*") if file.suffix in (".py", ".yaml", ".java", ".xml", "")]
    texts = {file: file.read_text("utf-8") for file in files if file.is_file()}
    assert [file for file, text in texts.items() if "0.0.0.0" in text] == []
    on_all = re.compile(r"=\S*://:|host=['\"]?['\"\s]", re.IGNORECASE)  # an empty host is all addresses, too
    services = {file: text for file, text in texts.items() if file.is_relative_to(TOP / "deploy/services")}
    assert HOST == "127.0.0.1" and [file for file, text in services.items() if on_all.search(text)] == []
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


def test_make_installs_nothing_without_a_hash() -> None:
    lines = (TOP / "Makefile").read_text("utf-8").splitlines()
    installing = [line for line in lines if line.startswith("\t") and re.search(r"call install,|\binstall ", line)]
    assert len(installing) == 4 and [one for one in installing if "--require-hashes" not in one] == [
        "\t@$(call install,--no-deps --no-build-isolation -e .)"
    ]


def installed(lines: list[str], python: dict[str, str]) -> set[tuple[str, str]]:
    """Return the names and versions of the lines whose marker fits."""
    requirements = [Requirement(line) for line in lines if line]
    fit = [one for one in requirements if one.marker is None or one.marker.evaluate(python)]
    return {(canonicalize_name(one.name), str(one.specifier)) for one in fit}
