"""Writes lists of sites in the forms of others: Common Crawl's files of ranks, and Tranco's lists.

Common Crawl's have tabs, and hosts with their labels reversed: `com.example.www`. IP addresses are not reversed. The
columns of the harmonic centrality are empty where it is not known. Tranco's are CSV without a head: the position and
the domain.
"""

from __future__ import annotations

import gzip
import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from opicflow.connectors.files.csv_cells import csv_text
from opicflow.connectors.files.whole_file import whole_file
from opicflow.schemas.errors import printable

SiteListForm = Literal["commoncrawl", "tranco"]
SITE_LIST_FORMS: tuple[SiteListForm, ...] = get_args(SiteListForm)

COMMON_CRAWL_COLUMNS = ("harmonicc_pos", "harmonicc_val", "pr_pos", "pr_val", "host_rev")
_ROWS_AT_ONCE = 1 << 16
_ADDRESS = re.compile(r"\[.*\]|[0-9.]+")  # a label of a name may be a number: com.example.1


def reversed_host(host: str) -> str:
    """Return a host with its labels in the opposite order; an IP address, and a port, stay as they are.

    >>> reversed_host("www.example.com"), reversed_host("com.example.www"), reversed_host("10.0.0.1")
    ('com.example.www', 'www.example.com', '10.0.0.1')
    """
    name, colon, port = (host, "", "") if host.startswith("[") else host.partition(":")
    if _ADDRESS.fullmatch(name):
        return host
    return ".".join(reversed(name.split("."))) + colon + port


@dataclass(frozen=True)
class SiteList:
    """Sites in their order, with the values of their ranks and, where known, their positions by harmonic centrality.

    Without `positions` the order is that of the values.
    """

    sites: Sequence[str]
    values: Sequence[float]
    positions: Sequence[int] | None = None
    harmonic: Sequence[float] | None = None
    harmonic_positions: Sequence[int] | None = None


def write_site_list(path: Path | None, form: SiteListForm, listed: SiteList) -> None:
    """Write a list of sites; without a path to standard output.

    A file is written whole or not at all, and compressed if its name ends in `.gz`.
    """
    if path is None:  # a terminal must not execute a name of a file of others
        listed = replace(listed, sites=list(map(printable, listed.sites)))
    texts = (
        _written(_common_crawl(listed), "\t") if form == "commoncrawl" else _written(enumerate(listed.sites, 1), ",")
    )
    if path is None:
        sys.stdout.writelines(texts)
        return
    with (
        whole_file(path) as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) if path.name.endswith(".gz") else nullcontext(file) as out,
    ):
        out.writelines(map(str.encode, texts))


def _written(rows: Iterable[Sequence[object]], divider: str) -> Iterator[str]:
    """Yield the lines of rows, some at a time. A host may have commas and quotes in it."""
    rest = iter(rows)
    while some := list(itertools.islice(rest, _ROWS_AT_ONCE)):
        yield csv_text(some, divider, "\n")


def _common_crawl(listed: SiteList) -> Iterator[Sequence[object]]:
    yield [f"#{name}" for name in COMMON_CRAWL_COLUMNS]
    positions = range(1, len(listed.sites) + 1) if listed.positions is None else listed.positions
    known: Iterable[tuple[object, object]] = itertools.repeat(("", ""), len(listed.sites))
    if listed.harmonic is not None and listed.harmonic_positions is not None:
        known = zip(listed.harmonic_positions, listed.harmonic, strict=True)
    for harmonic, position, value, site in zip(known, positions, listed.values, listed.sites, strict=True):
        yield *harmonic, position, repr(value), reversed_host(site)
