"""The webs that orders of discovery are compared on, with the exact importance of their pages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from opicflow.pipelines.lab.experiments.measures import exact_importance
from opicflow.pipelines.lab.web.directories import (
    ARCHIVE,
    HOMES,
    PORTAL,
    SHOP,
    DirectoryWeb,
    directory_web,
    hostile_web,
    numbered_by_url,
    without_hostile_pages,
)
from opicflow.pipelines.lab.web.webs import hosted_web
from opicflow.schemas.arrays import Floats, Ints

HOSTED = "hosted"
WITH_DIRECTORIES = {"archive": ARCHIVE, "portal": PORTAL, "shop": SHOP, "homes": HOMES}
HOSTILE = {"archive with traps": ARCHIVE, "portal with traps": PORTAL}
WEBS = (HOSTED, *WITH_DIRECTORIES, *HOSTILE)
SEEDS = 10


@dataclass(frozen=True, eq=False)
class CrawledWeb:
    """A web to crawl, the exact importance of its pages, and the pages at which a crawl begins.

    Hostile pages have no importance: they, and links to them, are no part of the web whose importance counts.
    """

    pages: DirectoryWeb
    exact: Floats
    seeds: Ints


@lru_cache(maxsize=2)
def crawled_web(name: str, pages: int, seed: int) -> CrawledWeb:
    """Return a web of `WEBS` with `pages` pages that are not hostile, and ten random pages that link as its seeds."""
    if name == HOSTED:
        hosted = hosted_web(pages, seed)
        urls = [
            b"https://host-%d.example/" % host + (b"page/%d" % number if number else b"")
            for host, number in zip(hosted.host.tolist(), hosted.number.tolist(), strict=True)
        ]
        none = np.zeros(pages, np.bool_)
        web = numbered_by_url(
            DirectoryWeb(hosted.graph, urls, hosted.host, hosted.host, hosted.host, hosted.number == 0, none)
        )
    elif name in HOSTILE:
        web = hostile_web(directory_web(pages, seed, HOSTILE[name]), seed)
    else:
        web = directory_web(pages, seed, WITH_DIRECTORIES[name])
    exact = exact_importance(without_hostile_pages(web))
    exact[web.is_hostile] = 0.0
    exact /= exact.sum()
    linking = np.flatnonzero((web.graph.out_degrees > 0) & ~web.is_hostile)
    seeds = np.sort(np.random.Generator(np.random.PCG64([seed, 3])).permutation(linking)[:SEEDS])
    return CrawledWeb(web, exact, seeds)
