"""The schemes of a manipulator with k pages, on a web of directories that is honest otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from opicflow.pipelines.lab.experiments.measures import exact_importance
from opicflow.pipelines.lab.web.directories import ARCHIVE, DirectoryWeb, directory_web
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.schemas.arrays import Bools, Ints
from opicflow.schemas.crawl_events import MOST_REDIRECTS

FARM, SUBDOMAINS, TRAP, ANNOUNCEMENTS, CYCLE = "link farm", "subdomains", "trap", "announcements", "redirect cycle"
CHAINS = "redirect chains"
SITE, HUNDRED, THOUSAND = "site", "farm on a hundred domains", "farm on a thousand domains"
CANONICALS, CALENDAR, INVENTED = "foreign canonicals", "calendar", "invented domains"
SCHEMES = (FARM, SUBDOMAINS, TRAP, ANNOUNCEMENTS)
"""The schemes whose gains are measured; the others are parts of attacks."""
READ = (FARM, SUBDOMAINS)
"""The schemes that gain importance by pages that are read; the pages of the others are known, and unread."""
_PAGES_PER_DOMAIN = {FARM: 100, HUNDRED: 10, THOUSAND: 1, INVENTED: 1}
CHILDREN = 8
"""The new URLs that each page of a trap names when it is read; and the days that a day of a calendar names."""


@dataclass(frozen=True, eq=False)
class ManipulatedWeb:
    """An honest web, a target page, and the pages of a manipulator.

    Pages are numbered: the honest ones first, then the target, then the manipulator's other pages, `made` of which are
    known when the manipulation begins. `before` has the links until then: the target has a link from one honest page,
    and links to that page. `after` has the links of the manipulator too, as they are if all pages are read.
    `domain` is the registrable domain of each page.
    """

    before: Graph
    after: Graph
    urls: list[bytes]
    domain: Ints
    target: int
    made: Ints
    inviter: int
    is_own: Bools
    """The target and the manipulator's other pages."""
    is_redirect: Bools
    """Pages that are read as redirects once the manipulation has begun."""
    is_announced: bool
    """Whether the pages made are announced, not linked."""
    good: Bools
    """The pages of a list of good hosts: a tenth of the honest ones."""

    def seen(self, is_read: bool) -> Graph:
        """Return the graph that is seen when everything is read, or everything but the manipulator's other pages."""
        if is_read:
            return self.after
        sources = self.after.sources
        return self.after.with_links(~self.is_own[sources] | (sources == self.target))

    @property
    def honest(self) -> Graph:
        """The graph without the manipulator."""
        return self.before.with_links(~self.is_own[self.before.sources] & ~self.is_own[self.before.targets])


@lru_cache(maxsize=1)
def _honest_web(pages: int, seed: int) -> tuple[DirectoryWeb, int]:
    """Return a web, and its page of median importance among those that link."""
    web = directory_web(pages, seed, ARCHIVE)
    linking = np.flatnonzero(web.graph.out_degrees > 0)
    ranked = linking[np.argsort(exact_importance(web.graph)[linking], kind="stable")]
    return web, int(ranked[len(ranked) // 2])


def manipulated_web(pages: int, seed: int, scheme: str, size: int, inviter: int | None = None) -> ManipulatedWeb:
    """Return a web of `pages` honest pages with a manipulation of `SCHEMES` that has `size` pages beside its target.

    - link farm: on own domains, a hundred pages each; the target links to all pages, and they link to the target.
    - subdomains: the same, each page on a subdomain of its own of the target's domain.
    - trap: pages of the target's host, to which the target links; each names eight new URLs of the host when read.
    - announcements: pages of the target's host that are announced; no page links to them.
    - redirect cycle: the target redirects to the first page, each page to the next one, and the last to the target.
    - redirect chains: pages of the target's host. The target links to the first page of each chain, of which twenty
      redirect to the next one; the last one answers, and links to the target.
    - site: as a link farm, all pages on the target's host.
    - farms on a hundred and on a thousand domains: as a link farm, ten pages on each domain, and one.
    - foreign canonicals: as a site, but each page names the most important honest page as its canonical page.
    - calendar: pages of the target's host, each of which links to the next eight, and to the target.
    - invented domains: the target links to pages on domains that do not exist.

    One honest page links to the target: `inviter`, or the page of median importance.
    """
    web, usual = _honest_web(pages, seed)
    inviter = usual if inviter is None else inviter
    target, own = pages, pages + 1 + np.arange(size)
    children = own[-1] + 1 + np.arange(CHILDREN * size) if scheme == TRAP else own[:0]
    every = pages + 1 + size + len(children)
    sources, targets = web.graph.sources, web.graph.targets.astype(np.int64)
    sources, targets = np.append(sources, inviter), np.append(targets, target)
    before = Graph.from_links(every, np.append(sources, target), np.append(targets, inviter))
    added: list[tuple[Ints, Ints]] = []
    if scheme == CYCLE:
        ring = np.concatenate(([target], own))
        added.append((ring, np.roll(ring, -1)))
    elif scheme == CHAINS:
        answers = _answers(own)
        firsts = own[:: MOST_REDIRECTS + 1]
        added.append((np.full(len(firsts), target), firsts))
        added.append((own, np.where(answers, target, own + 1)))
    elif scheme == CALENDAR:
        days = own[:, None] + 1 + np.arange(CHILDREN)
        added.append((np.append(own, target), np.append(np.full(size, target), own[0])))
        added.append((np.repeat(own, CHILDREN)[days.ravel() <= own[-1]], days[days <= own[-1]]))
    elif scheme in (CANONICALS, INVENTED):
        added.append((np.full(size, target), own))
        if scheme == CANONICALS:
            added.append((own, np.full(size, int(np.argmax(exact_importance(web.graph))))))
    elif scheme != ANNOUNCEMENTS:
        added.append((np.full(size, target), own))
        added.append((own, np.full(size, target)) if scheme != TRAP else (np.repeat(own, CHILDREN), children))
    else:
        added.append((np.array([target]), np.array([inviter])))
    after = Graph.from_links(
        every,
        np.concatenate([sources, *(some for some, _ in added)]),
        np.concatenate([targets, *(some for _, some in added)]),
    )
    urls, domains = _urls(scheme, size, len(children))
    random = np.random.Generator(np.random.PCG64([seed, 5]))
    sites = int(web.site.max()) + 1
    good_sites = random.permutation(sites)[: max(1, sites // 10)]
    is_own = np.arange(every) >= target
    return ManipulatedWeb(
        before,
        after,
        [*web.urls, *urls],
        np.concatenate((web.domain, int(web.domain.max()) + 1 + domains)),
        target,
        own,
        inviter,
        is_own,
        _redirects(scheme, target, own, every),
        scheme == ANNOUNCEMENTS,
        np.concatenate((np.isin(web.site, good_sites), np.zeros(every - pages, np.bool_))),
    )


def answering_pages(size: int) -> int:
    """Return how many of so many pages of redirect chains answer."""
    return -(-size // (MOST_REDIRECTS + 1))


def _answers(own: Ints) -> Bools:
    """Return which pages of redirect chains answer: the last one of each chain."""
    is_last: Bools = np.arange(len(own)) % (MOST_REDIRECTS + 1) == MOST_REDIRECTS
    is_last[-1:] = True
    return is_last


def _redirects(scheme: str, target: int, own: Ints, pages: int) -> Bools:
    found = np.zeros(pages, np.bool_)
    if scheme == CYCLE:
        found[target:] = True
    elif scheme == CHAINS:
        found[own] = ~_answers(own)
    return found


def without_links_in_domains(web: ManipulatedWeb) -> ManipulatedWeb:
    """Return the web without links within a registrable domain: what the options of links weigh as 0."""

    def thinned(graph: Graph) -> Graph:
        return graph.with_links(web.domain[graph.sources] != web.domain[graph.targets])

    return replace(web, before=thinned(web.before), after=thinned(web.after))


def _urls(scheme: str, size: int, children: int) -> tuple[list[bytes], Ints]:
    """Return the URLs of the target and the other pages, and the domain of each, from 0."""
    host = b"https://target.example/"
    numbers = range(1, size + children + 1)
    if scheme in _PAGES_PER_DOMAIN:
        domains = (np.arange(size) // _PAGES_PER_DOMAIN[scheme]).astype(np.int64) + 1
        pages = [
            b"https://farm%d.example/%d.html" % (domain, number)
            for domain, number in zip(domains.tolist(), numbers, strict=True)
        ]
        return [host, *pages], np.concatenate(([0], domains))
    if scheme == SUBDOMAINS:
        return [host, *(b"https://n%d.target.example/" % number for number in numbers)], np.zeros(size + 1, np.int64)
    return [host, *(b"%s%d.html" % (host, number) for number in numbers)], np.zeros(size + children + 1, np.int64)
