"""Webs of sites with directories: pages linked by templates, deep archives, and sites behind a single weak link.

A page is in a directory of a site. The template of the site links every page to the front page, the menu and the page
above; an index lists the pages of its directory, so many a list page, one list page leading to the next:

    https://s7.example/                        front page = index of the first directory
    https://s7.example/d0k/                    index: lists 1.html … 12.html, and the indexes of d0k's directories
    https://s7.example/d0k/12.html             a list page: lists 13.html … 24.html
    https://s7.example/d0k/d1c/3.html          a leaf, which links to the next ones, and to pages that are popular

Pages are numbered in the order of their URLs: the host reversed, then the path.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.schemas.arrays import Bools, Floats, Ints

Int32s = npt.NDArray[np.int32]

_FRONT, _INDEX = 0.2, 0.3
_SHARED = 0.2
"""The share of sites that are on a host of another one's domain."""
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_CHILDREN_OF_A_TRAP = 8
_STEPS_OF_A_CALENDAR = (1, 7, 30, 365)


@dataclass(frozen=True)
class DirectoryStyle:
    """How a web of directories is made. Shares are from 0 to 1.

    - `pages_per_site`: the mean; the r-th largest site has about `r ** -sizes_fall` of the largest one's pages.
    - `pages_per_directory`: the median; the logarithm of the size has the deviation `directory_spread`.
    - `deep`: the share of directories that lie in the one made before, the others in any earlier one of their site.
    - `home`, `up`, `menu`: the share of sites whose pages link to the front page; the share whose pages link to the
      index above; the most directories in the menu, to which every page of the site links.
    - `listed`: the pages that a list page lists. `siblings`: the next pages of the directory that a leaf links to, from
      0 to twice this number, the same in the whole directory.
    - `closed`: the share of directories whose leaves link to all that their list page lists.
    - `links`, `external`: content links a page, in the mean, within the site and to other sites.
    - `favour`, `own_favour`: the deviations of the logarithms of a directory's popularity and of a page's within it.
    - `quoted`: the share of external links that lead to one of the few pages which many sites quote.
    - `weak`: the share of sites that a single link leads to, from any page of another site; `posted`: the share of
      these links that are on the index of a directory, and so found early.
    - `dangling`: the share of leaves that have no links at all (documents).
    """

    pages_per_site: float = 60.0
    sizes_fall: float = 0.8
    pages_per_directory: float = 12.0
    directory_spread: float = 1.0
    deep: float = 0.3
    home: float = 0.9
    up: float = 0.9
    menu: int = 6
    listed: int = 20
    siblings: int = 2
    closed: float = 0.0
    links: float = 3.0
    external: float = 0.5
    favour: float = 1.0
    own_favour: float = 0.5
    quoted: float = 0.5
    weak: float = 0.3
    posted: float = 0.0
    dangling: float = 0.1

    def __post_init__(self) -> None:
        """Refuse what cannot be, in one line."""
        for name in ("deep", "home", "up", "quoted", "weak", "posted", "dangling", "closed"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be a share from 0 to 1, not {getattr(self, name)}")
        for name in ("pages_per_site", "pages_per_directory", "listed"):
            if not getattr(self, name) >= 2:
                raise ValueError(f"{name} must be at least 2, not {getattr(self, name)}")
        for name in ("sizes_fall", "directory_spread", "menu", "siblings", "links", "external", "favour", "own_favour"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, not {getattr(self, name)}")


ARCHIVE = DirectoryStyle()
"""Some hundred sites of small directories, which quote each other: importance is spread over many pages."""
PORTAL = DirectoryStyle(
    pages_per_site=400,
    sizes_fall=1.2,
    pages_per_directory=60,
    home=1.0,
    up=0.3,
    menu=3,
    listed=100,
    siblings=1,
    links=0.1,
    external=0.05,
    weak=0.7,
    posted=1.0,
    dangling=0.0,
)
"""A few large sites, most behind one weak link: a few pages of each, in every menu, have most importance."""
SHOP = DirectoryStyle(
    pages_per_site=150,
    pages_per_directory=30,
    menu=10,
    listed=10,
    siblings=3,
    links=1,
    external=0.2,
    weak=0.5,
    posted=0.5,
)
"""Deep lists of ten pages a list page, and long menus."""
HOMES = DirectoryStyle(
    pages_per_site=8, sizes_fall=1.2, siblings=1, links=4, favour=1.5, own_favour=0.2, weak=0.5, dangling=0.3
)
"""A thousand small sites and a few large ones: exploring a site of three pages brings little."""


@dataclass(frozen=True, eq=False)
class DirectoryWeb:
    """A web of directories. Page i has `urls[i]`; pages are in the order of their URLs.

    `site` and `directory` ascend in that order within a host; `domain` is the registrable domain of each page, which a
    few sites share. `is_front` marks the front pages of sites; `is_hostile` the pages of traps and link farms.
    """

    graph: Graph
    urls: list[bytes]
    site: Int32s
    domain: Int32s
    directory: Int32s
    is_front: Bools
    is_hostile: Bools


def directory_web(pages: int, seed: int, style: DirectoryStyle = ARCHIVE) -> DirectoryWeb:
    """Return a web of `pages` pages on sites of very unequal size (`DirectoryStyle`). All links are ordinary.

    Every page can be reached from every front page of a site that is not weak, because every site is linked from an
    earlier one, and the first site from every other that is not weak. The same seed gives the same web.

    Raises ValueError, with a message of one line, for fewer than 20 pages.
    """
    if not 20 <= pages < 2**31:
        raise ValueError(f"a web of directories needs from 20 to {2**31 - 1} pages, not {pages}")
    return numbered_by_url(_made(pages, np.random.Generator(np.random.PCG64(seed)), style))


def hostile_web(
    web: DirectoryWeb, seed: int, trap: float = 0.5, farm: float = 0.2, invitations: int = 20
) -> DirectoryWeb:
    """Return this web with a trap of new URLs and a link farm, of so many pages per page of the web.

    - The trap is two sites of one domain: a calendar, whose days lead to days near and far, and a tree of sessions,
      every page of which leads to eight new URLs. No link leaves the two sites. They represent endless ones: give them
      more pages than a crawl will read.
    - The farm has a page with ten domains for 1,000 pages. All its pages link to each other's front pages, to pages of
      their own domain, and to the one page which it promotes.
    - `invitations` links lead from random pages of the web to either, as from comments.

    The pages of both are hostile; the others keep their links, apart from the invitations.
    """
    random = np.random.Generator(np.random.PCG64([seed, 1]))
    honest, days = web.graph.pages, max(2, round(trap * web.graph.pages / 2))
    members = max(20, round(farm * honest))
    calendar = honest + np.arange(days)
    session = honest + days + np.arange(days)
    farm_pages = honest + 2 * days + np.arange(members)
    links = [(web.graph.sources, web.graph.targets.astype(np.int64))]
    for step in _STEPS_OF_A_CALENDAR:
        links += [(calendar[:-step], calendar[step:]), (calendar[step:], calendar[:-step])] if step < days else []
    links.append((session[(np.arange(1, days) - 1) // _CHILDREN_OF_A_TRAP], session[1:]))
    links.append((session, np.full(days, session[0])))
    domains = max(2, members // 100)
    of_domain = np.arange(members) * domains // members
    fronts = farm_pages[np.searchsorted(of_domain, np.arange(domains))]
    boss = np.full(members, farm_pages[0])
    links += [(farm_pages, boss), (farm_pages, np.roll(farm_pages, -1))]
    links += [(farm_pages, fronts[random.integers(0, domains, members)]) for _ in range(3)]
    links += [(fronts[of_domain], farm_pages), (farm_pages, farm_pages[random.integers(0, members, members)])]
    guests = random.choice(honest, min(honest, 2 * invitations), replace=False)
    links.append((guests, np.where(np.arange(len(guests)) % 2 == 0, farm_pages[0], calendar[days // 2])))
    links[-1][1][1::4] = session[0]
    sources, targets = (np.concatenate(ends) for ends in zip(*links, strict=True))
    urls = [*web.urls]
    urls += [b"https://calendar.trap.example/day/%d" % day for day in range(days)]
    urls += [b"https://session.trap.example/" + _session_path(number) for number in range(days)]
    urls += [
        b"https://farm%d.example/%s" % (domain, b"%d.html" % number if number else b"")
        for domain, number in zip(of_domain.tolist(), (farm_pages - fronts[of_domain]).tolist(), strict=True)
    ]
    sites, own_domains, directories = (int(column.max()) + 1 for column in (web.site, web.domain, web.directory))
    of_trap = np.repeat([0, 1], days)
    made = DirectoryWeb(
        Graph.from_links(honest + 2 * days + members, sources, targets),
        urls,
        np.concatenate((web.site, sites + of_trap, sites + 2 + of_domain)).astype(np.int32),
        np.concatenate((web.domain, own_domains + 0 * of_trap, own_domains + 1 + of_domain)).astype(np.int32),
        np.concatenate((web.directory, directories + of_trap, directories + 2 + of_domain)).astype(np.int32),
        np.concatenate((web.is_front, np.isin(np.arange(honest, honest + 2 * days + members), fronts))),
        np.arange(honest + 2 * days + members) >= honest,
    )
    return numbered_by_url(made)


def without_hostile_pages(web: DirectoryWeb) -> Graph:
    """Return the graph without the links of hostile pages and the links to them; they keep their numbers."""
    graph = web.graph
    return graph.with_links(~web.is_hostile[graph.sources] & ~web.is_hostile[graph.targets])


def url_key(url: bytes) -> bytes:
    """Return what URLs are ordered by: the labels of the host in reverse, then path and query."""
    host, _, path = url.partition(b"://")[2].partition(b"/")
    return b".".join(reversed(host.split(b"."))) + b"/" + path


def _made(pages: int, random: np.random.Generator, style: DirectoryStyle) -> DirectoryWeb:
    # Sites: the strong ones come first, each one linked from an earlier one.
    count = max(2, round(pages / style.pages_per_site))
    shares = np.cumsum(np.arange(1.0, count + 1) ** -style.sizes_fall)
    sizes = 1 + np.diff(np.floor(shares * ((pages - count) / shares[-1]) + 0.5).astype(np.int64), prepend=0)
    sizes[0] += pages - int(sizes.sum())
    site_starts = _starts(random.permutation(sizes))
    strong = max(1, count - round(style.weak * count))
    # Directories: pieces of sites.
    mean_size = style.pages_per_directory
    draws = np.maximum(1, np.exp(random.normal(np.log(mean_size), style.directory_spread, pages)))
    cuts = np.cumsum(draws).astype(np.int64)
    first = np.unique(np.concatenate((cuts[cuts < pages], site_starts[:-1])))
    length = np.diff(first, append=pages)
    site_of_directory = np.searchsorted(site_starts, first, side="right") - 1
    directories = len(first)
    root = np.searchsorted(first, site_starts[:-1])
    rank = np.arange(directories) - root[site_of_directory]  # 0 = the root
    deep = random.random(directories) < style.deep
    parent = root[site_of_directory] + np.where(
        deep, rank - 1, (random.random(directories) ** 1.5 * rank).astype(np.int64)
    )
    parent[root] = root
    page = np.arange(pages)
    directory = np.searchsorted(first, page, side="right") - 1
    position = page - first[directory]
    site = site_of_directory[directory]
    index, front = first[directory], site_starts[site]
    is_leaf = position > 0
    links: list[tuple[Ints, Ints]] = []
    # The template.
    has_home, has_up = (random.random(count) < share for share in (style.home, style.up))
    menu_size = random.integers(0, style.menu + 1, count)
    links.append((page[has_home[site]], front[has_home[site]]))
    above = np.where(is_leaf, index, first[parent[directory]])
    links.append((page[has_up[site]], above[has_up[site]]))
    level1 = np.flatnonzero((parent == root[site_of_directory]) & (rank > 0))
    first_of_site = np.searchsorted(site_of_directory[level1], np.arange(count))
    of_site = np.diff(np.append(first_of_site, len(level1)))
    for entry in range(style.menu):
        there = page[(entry < menu_size[site]) & (entry < of_site[site])]
        links.append((there, first[level1[first_of_site[site[there]] + entry]]))
    # Lists: the index lists its directories; list pages list the next pages and the next list page.
    lister = index + (position - 1) // style.listed * style.listed
    links.append((lister[is_leaf], page[is_leaf]))
    inner = np.flatnonzero(rank > 0)
    links.append((first[parent[inner]], first[inner]))
    next_pages = random.integers(0, 2 * style.siblings + 1, directories)
    for step in range(1, 2 * style.siblings + 1):
        there = page[is_leaf & (step <= next_pages[directory]) & (position + step < length[directory])]
        links.append((there, there + step))
    is_closed = (random.random(directories) < style.closed)[directory] & is_leaf
    for step in range(1, style.listed if style.closed else 1):
        there = page[
            is_closed & (position + step < length[directory]) & ((position - 1) % style.listed + step < style.listed)
        ]
        links += [(there, there + step), (there + step, there)]
    # Content: popular pages of popular directories of the site.
    popular = np.exp(random.normal(0, style.favour, directories))[directory]
    popular *= np.exp(random.normal(0, style.own_favour, pages))
    popular[~is_leaf] *= 2
    links.append(_content_links(random, site_starts, site, popular, style.links))
    # Other sites: pages that many quote, front pages, and how every site is reached at all.
    links.append(_external_links(random, site_starts, site, popular, strong, style))
    others = np.arange(1, count)
    seen = np.minimum(others, strong) if strong < count else others
    from_site = np.where(others < strong, (random.random(count - 1) * seen).astype(np.int64), 0)
    weak = others >= strong
    from_site[weak] = (random.random(int(weak.sum())) * others[weak]).astype(np.int64)
    inside = (random.random(count - 1) * np.diff(site_starts)[from_site]).astype(np.int64)
    linkers = site_starts[from_site] + inside
    posted = random.random(count - 1) < style.posted
    links.append((np.where(weak & posted, index[linkers], linkers), site_starts[others]))
    links.append((site_starts[others[~weak]], site_starts[from_site[~weak]]))
    sources, targets = (np.concatenate(ends) for ends in zip(*links, strict=True))
    # Documents have no links, unless something is reached through them alone.
    needed = np.zeros(pages, np.bool_)
    needed[lister[is_leaf]] = True
    needed[links[-2][0]] = True
    silent = is_leaf & ~needed & (random.random(pages) < style.dangling)
    kept = ~silent[sources]
    graph = Graph.from_links(pages, sources[kept], targets[kept])
    domain = np.arange(count)
    shared = np.flatnonzero((random.random(count) < _SHARED) & (domain > 0))
    domain[shared] = (random.random(len(shared)) * shared).astype(np.int64)
    domain = domain[domain]
    return DirectoryWeb(
        graph,
        _urls(site, directory, position, domain, parent, root[site_of_directory], random),
        site.astype(np.int32),
        domain[site].astype(np.int32),
        directory.astype(np.int32),
        page == front,
        np.zeros(pages, np.bool_),
    )


def _content_links(
    random: np.random.Generator, site_starts: Ints, site: Ints, popular: Floats, mean: float
) -> tuple[Ints, Ints]:
    """Return links within sites, a Poisson number a page, to pages in proportion to their popularity."""
    sources = np.repeat(np.arange(len(site)), random.poisson(mean, len(site)))
    cumulated = np.concatenate(([0.0], np.cumsum(popular)))
    low, high = cumulated[site_starts[site[sources]]], cumulated[site_starts[site[sources] + 1]]
    targets = np.searchsorted(cumulated, low + random.random(len(sources)) * (high - low), side="right") - 1
    return sources, np.clip(targets, site_starts[site[sources]], site_starts[site[sources] + 1] - 1)


def _external_links(
    random: np.random.Generator, site_starts: Ints, site: Ints, popular: Floats, strong: int, style: DirectoryStyle
) -> tuple[Ints, Ints]:
    """Return links to other sites: to quoted pages, to front pages and to any page of sites that are not weak."""
    pages, reach = len(site), int(site_starts[strong])
    sources = np.repeat(np.arange(pages), random.poisson(style.external, pages))
    chance = random.random(len(sources))
    quoted = np.argsort(-popular[:reach] * random.random(reach), kind="stable")[: max(1, reach // 50)]
    famous = np.cumsum((np.arange(len(quoted)) + 2.0) ** -0.8)
    known = np.cumsum(np.exp(random.normal(0, 1.5, strong)) * np.sqrt(np.diff(site_starts)[:strong]))
    to_quoted = quoted[np.searchsorted(famous, random.random(len(sources)) * famous[-1])]
    to_front = site_starts[np.searchsorted(known, random.random(len(sources)) * known[-1])]
    anywhere = (random.random(len(sources)) * reach).astype(np.int64)
    targets = np.where(chance < style.quoted, to_quoted, np.where(chance < (1 + style.quoted) / 2, to_front, anywhere))
    kept = site[sources] != site[targets]
    return sources[kept], targets[kept]


def _urls(
    site: Ints, directory: Ints, position: Ints, domain: Ints, parent: Ints, root: Ints, random: np.random.Generator
) -> list[bytes]:
    """Return the URL of every page; the names of directories say nothing of the order in which they were made."""
    paths: list[bytes] = []
    salt = random.permutation(len(parent)).tolist()
    for own, (above, top) in enumerate(zip(parent.tolist(), root.tolist(), strict=True)):
        paths.append(b"/" if own == top else paths[above] + _word(salt[own]) + b"/")
    hosts = [
        b"https://s%d.example" % own if own == other else b"https://w%d.s%d.example" % (own, other)
        for own, other in enumerate(domain.tolist())
    ]
    return [
        hosts[own] + paths[folder] + (b"%d.html" % number if number else b"")
        for own, folder, number in zip(site.tolist(), directory.tolist(), position.tolist(), strict=True)
    ]


def _word(number: int) -> bytes:
    letters = ""
    while number or not letters:
        number, digit = divmod(number, len(_DIGITS))
        letters += _DIGITS[digit]
    return b"d" + letters.encode()


def _session_path(number: int) -> bytes:
    steps: list[int] = []
    while number:
        steps.append((number - 1) % _CHILDREN_OF_A_TRAP)
        number = (number - 1) // _CHILDREN_OF_A_TRAP
    return b"".join(b"%d/" % step for step in reversed(steps))


def numbered_by_url(web: DirectoryWeb) -> DirectoryWeb:
    """Return the web with its pages numbered in the order of their URLs."""
    keys = [url_key(url) for url in web.urls]
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    columns = {name: getattr(web, name)[order] for name in ("site", "domain", "directory", "is_front", "is_hostile")}
    graph = Graph.from_links(len(order), place[web.graph.sources], place[web.graph.targets], web.graph.weights)
    return replace(web, graph=graph, urls=[web.urls[page] for page in order.tolist()], **columns)


def _starts(counts: Ints) -> Ints:
    return np.concatenate(([0], np.cumsum(counts)))
