"""A made-up web with what real ones have in their addresses, and all the ways in which people write links to its pages.

Everything follows from the seed and from numbers of hosts, pages and links. Each page has its canonical URL from the
beginning, and links are written from it: what a link means is known without a parser of URLs. How many pages a host
has, which pages have many links, how long names are: all of this differs from seed to seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FINE, MOVED, GONE, TWIN, BLOCKED, SHAKY = range(6)
"""The fates of pages. A twin has the URL of another page, and a session or a campaign in it."""
_SHARES = (0.83, 0.05, 0.04, 0.04, 0.01, 0.03)
NO_PAGE = -1

_SYLLABLES = [
    "an", "ba", "ber", "co", "da", "del", "en", "fo", "ga", "gri", "ha", "in", "ju", "ka", "la", "lo", "ma",
    "mi", "na", "no", "or", "pe", "qui", "ra", "ro", "sa", "ste", "ta", "ti", "un", "va", "wo", "ya", "zu",
]  # fmt: skip
_FOREIGN = ("straße", "bücher", "čaj", "žluť", "señor", "naïve", "новости", "книга", "中文", "東京", "ελλάδα", "rød")
"""Words that are not ASCII, in small letters and in normal form, so that hosts can have them."""
_FOREIGN_PATHS = (*_FOREIGN, "Ärger", "cafe\u0301", "日本語", "مرحبا", "🦆")
_TOP_LEVELS = (".example", ".test", ".example", ".a.example")
_PATHS = (
    "/{s}/{w}-{n}",
    "/{s}/{w}-{n}.html",
    "/{n}/",
    "/{s}/2025/03/{w}-{n}/",
    "/{w}.php?id={n}&lang=en",
    "/{s}?page={n}",
    "/Wiki/{w}_({n})",
    "/~{w}/{n}/index.html",
    "/{s};v={n}/a,b:c@d!$'*+",
    "/a//{w}{n}",
    "/{f}/{n}",
    "/{s}/{f} {w} {n}.pdf",
    "/search?q={f}+'{w}'&n={n}",
    "/%e4%b8%ad/%2F{n}%7e",
    '/{s}/"{w}"<{n}>`{{}}',
    "/{s}/:{n}",
)
"""Paths as people write them: a section, a word, a word that is not ASCII, and the number of the page in its host."""
_PLAIN_PATHS = 8
"""The first paths need no change to be canonical."""
_OTHER_PATHS = 0.12
_SAFE_IN_PATH = "!$%&'()*+,-./:;=@[\\]_~|"
_SAFE_IN_QUERY = "!$%&()*+,-./:;=?@[\\]^_`{|}~"
_IN_TWINS = ("sid", "jsessionid", "utm_source")
FOLDED_BY = "session,tracking"
"""What `--drop-parameters` takes to make twins one page."""

NO_PAGES = (
    "mailto:kim@a.example",
    "javascript:void(0)",
    "tel:+49-30-1234",
    "data:image/gif;base64,R0lGODlhAQABAAAAACw=",
    "http://",
    "https://[::1/",
    "https://a b.example/",
    "https://a.example:99999/",
    "ftp://ftp.a.example/pub",
    "about:blank",
    None,
    "https://a.example/" + 9_000 * "x",
)
"""Links that are no pages. The last one is rare: it is long."""
_FRAGMENTS = ("#top", "#", "#section-3", "#!/view/1", "#:~:text=a%20b", "#übersicht", "#a?b=c#d")

Form = Callable[[int, int], str]
"""Writes a link: on this page, to that page."""


def noise(*keys: npt.ArrayLike) -> Floats:
    """Return numbers from 0 to 1 that depend on these whole numbers alone."""
    state = np.full(1, 0x9E3779B97F4A7C15, np.uint64)
    for key in keys:
        state = (state ^ np.asarray(key).astype(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(29)
    return (state >> np.uint64(11)) * 2.0**-53


class Links(NamedTuple):
    """The links of pages, in columns: those of page i are [starts[i], starts[i + 1]). Targets are pages or NO_PAGE."""

    starts: Ints
    bases: Ints
    targets: Ints
    forms: Ints
    spice: Floats
    """A number from 0 to 1 for everything else about a link."""


@dataclass(frozen=True)
class RealWeb:
    """A web of so many pages and hosts, with so many links a page in the mean."""

    pages: int
    hosts: int
    links: float = 8.0
    seed: int = 0

    # -- sizes and fates, in columns -----------------------------------------------------------------------------------

    @cached_property
    def _shape(self) -> dict[str, float]:
        """Return what differs from seed to seed."""
        random = np.random.default_rng([self.seed, 1])
        ranges = {
            "host_slope": (0.4, 1.3),
            "fame": (1.5, 4.0),
            "depth_fame": (1.5, 3.5),
            "inner": (0.5, 0.85),
            "spread": (0.5, 1.2),
            "foreign": (0.02, 0.1),
            "syllables": (2.0, 5.0),
        }
        return {name: float(random.uniform(*between)) for name, between in ranges.items()}

    @cached_property
    def first(self) -> Ints:
        """The first page of each host, its home page, and the number of all pages behind them."""
        sums = np.cumsum((1.0 + np.arange(self.hosts)) ** -self._shape["host_slope"])
        more = np.floor(sums / sums[-1] * (self.pages - self.hosts)).astype(np.int64)
        return np.concatenate(([0], np.arange(1, self.hosts + 1) + more))

    @cached_property
    def host_of(self) -> Ints:
        return np.repeat(np.arange(self.hosts), np.diff(self.first))

    @cached_property
    def fates(self) -> Ints:
        chance = noise(self.seed, 2, np.arange(self.pages))
        fates = np.searchsorted(np.cumsum(_SHARES)[:-1], chance, side="right")
        fates[self.first[:-1]] = FINE
        return fates

    @cached_property
    def leads_to(self) -> Ints:
        """The page to which a page that has moved leads; of a twin, the page whose twin it is; the page itself."""
        pages = np.arange(self.pages)
        home = self.first[self.host_of]
        to = np.where(np.isin(self.fates, (MOVED, TWIN)), home + (pages - home) // 2, pages)
        while (is_wrong := (self.fates == TWIN) & np.isin(self.fates[to], (MOVED, TWIN))).any():
            to = np.where(is_wrong, home + (to - home) // 2, to)
        return to

    @cached_property
    def folded(self) -> Ints:
        """The page that each page is where `FOLDED_BY` is dropped from URLs."""
        return np.where(self.fates == TWIN, self.leads_to, np.arange(self.pages))

    @cached_property
    def ends(self) -> Ints:
        """The page at which a visitor of each page arrives who follows redirects."""
        ends = np.arange(self.pages)
        while (moves := self.fates[ends] == MOVED).any():
            ends[moves] = self.leads_to[ends[moves]]
        return ends

    @cached_property
    def changes_per_day(self) -> Floats:
        return 10 ** (3.5 * noise(self.seed, 3, np.arange(self.pages)) - 3)

    @cached_property
    def _degrees(self) -> Ints:
        spread = self._shape["spread"]
        normal = np.random.default_rng([self.seed, 4]).normal(size=self.pages)
        wanted = self.links * np.exp(spread * normal - spread**2 / 2)
        return np.minimum(wanted + noise(self.seed, 5, np.arange(self.pages)), 40 * self.links + 1).astype(np.int64)

    def links_of(self, pages: Ints, versions: Ints) -> Links:
        """Return the links of pages at these versions: most links are in many versions."""
        counts = self._degrees[pages]
        starts = np.concatenate(([0], np.cumsum(counts)))
        owner = np.repeat(np.arange(len(pages)), counts)
        slot = np.arange(starts[-1]) - starts[owner]
        base = pages[owner]
        lasts = 1 + (40 * noise(self.seed, 6, base, slot)).astype(np.int64)
        key = (self.seed, base, slot, (versions[owner] + lasts // 2) // lasts)
        kind, which, depth, chance = (noise(7 + part, *key) for part in range(4))
        inner, shape = self._shape["inner"], self._shape
        host = np.where(kind < inner, self.host_of[base], (self.hosts * which ** shape["fame"]).astype(np.int64))
        size = self.first[host + 1] - self.first[host]
        target = self.first[host] + (size * depth ** shape["depth_fame"]).astype(np.int64)
        is_itself = kind < 0.02
        target = np.where(is_itself, base, target)
        is_none = kind > 0.97
        forms = np.where(
            host == self.host_of[base],
            np.searchsorted(_INNER_ODDS, chance),
            _OUTER + np.searchsorted(_OUTER_ODDS, chance),
        )
        longest = len(NO_PAGES) - 1
        none = np.where(which > 0.995, longest, which * longest).astype(np.int64)
        return Links(
            starts,
            base,
            np.where(is_none, NO_PAGE, target),
            np.where(is_none, none, forms),
            noise(11, *key),
        )

    # -- names ---------------------------------------------------------------------------------------------------------

    @cached_property
    def _words(self) -> list[str]:
        random = np.random.default_rng([self.seed, 12])
        lengths = 1 + random.poisson(self._shape["syllables"] - 1, 400)
        return ["".join(random.choice(_SYLLABLES, length)) for length in lengths]

    @cached_property
    def _names(self) -> list[tuple[str, str, str]]:
        """The scheme of each host, its canonical name, and the name as people write it."""
        schemes = np.where(noise(self.seed, 14, np.arange(self.hosts)) < 0.15, "http", "https").tolist()
        is_foreign = (noise(self.seed, 13, np.arange(self.hosts)) < self._shape["foreign"]).tolist()
        owners = [host - host % 3 // 2 for host in range(self.hosts)]  # every third is in the domain of the one before
        return [
            (scheme, *self._name(host, owner, is_foreign[owner]))
            for host, (scheme, owner) in enumerate(zip(schemes, owners, strict=True))
        ]

    def _name(self, host: int, owner: int, is_foreign: bool) -> tuple[str, str]:
        word, end = self._words[owner % 400], _TOP_LEVELS[owner % len(_TOP_LEVELS)]
        before = ("", "www.", "blog.")[host % 3]
        if is_foreign or owner % 100 == 4:
            foreign = f"{_FOREIGN[owner % len(_FOREIGN)]}-{owner:x}"
            return f"{before}xn--{foreign.encode('punycode').decode()}{end}", f"{before}{foreign}{end}"
        if host % 300 == 13:
            high, low = 1 + host // 65535, 1 + host % 65535
            return f"[2001:db8::{high:x}:{low:x}]", f"[2001:0DB8:0::{high:04X}:{low:X}]"
        if host % 300 == 16 and host < 1 << 17:
            network = 18 + host // 65536
            return f"198.{network}.{host // 256 % 256}.{host % 256}", f"198.0x{network:X}.{host % 65536}"
        name = f"{before}{word}-{owner:x}{end}"
        return (f"{name}:8443", f"{name}:08443") if host % 100 == 10 else (name, name)

    @cached_property
    def origins(self) -> list[str]:
        """The beginnings of the canonical URLs of all hosts."""
        return [f"{scheme}://{name}" for scheme, name, _ in self._names]

    @cached_property
    def _paths(self) -> tuple[list[str], list[str]]:
        """The canonical path of each page, and its path as people write it."""
        pages = np.arange(self.pages)
        ordinary = np.random.default_rng([self.seed, 15]).dirichlet(np.ones(_PLAIN_PATHS)) * (1 - _OTHER_PATHS)
        others = len(_PATHS) - _PLAIN_PATHS
        odds = np.concatenate((ordinary, np.full(others, _OTHER_PATHS / others)))
        kinds = np.searchsorted(np.cumsum(odds)[:-1], noise(self.seed, 16, pages), side="right").tolist()
        sections = (6 * noise(self.seed, 17, pages)).astype(np.int64).tolist()
        numbers = (pages - self.first[self.host_of]).tolist()
        words, fates, to = self._words, self.fates.tolist(), self.leads_to.tolist()
        canonical, written = [], []
        for page, (kind, section, number) in enumerate(zip(kinds, sections, numbers, strict=True)):
            if number == 0:
                path = form = "/"
            elif fates[page] == TWIN:
                path, form = (_twin_of(paths[to[page]], page) for paths in (canonical, written))
            else:
                word, foreign = words[page % 397], _FOREIGN_PATHS[page % len(_FOREIGN_PATHS)]
                form = _PATHS[kind].format(s=words[section], w=word, f=foreign, n=number)
                path = form if kind < _PLAIN_PATHS else canonical_path(form)
            canonical.append(path)
            written.append(form)
        return canonical, written

    @cached_property
    def urls(self) -> list[str]:
        """The canonical URLs of all pages."""
        origins = self.origins
        return [origins[host] + path for host, path in zip(self.host_of.tolist(), self._paths[0], strict=True)]

    # -- how links are written -----------------------------------------------------------------------------------------

    def write(self, links: Links) -> list[str | None]:
        """Return links as pages have them."""
        forms = self._forms
        has_fragment = (links.spice < 0.1) & ~np.isin(links.forms, _WITH_BLANKS)
        return [
            NO_PAGES[form]
            if target < 0
            else forms[form](base, target) + (_FRAGMENTS[target % len(_FRAGMENTS)] if fragment else "")
            for base, target, form, fragment in zip(
                links.bases.tolist(), links.targets.tolist(), links.forms.tolist(), has_fragment.tolist(), strict=True
            )
        ]

    def write_url(self, page: int, chance: float) -> str:
        """Return the full URL of a page: canonical in two of three cases."""
        form = int(chance < 1 / 3) * int(3 * chance * _FULL_FORMS)
        return self._forms[_OUTER + form](page, page)

    @cached_property
    def _forms(self) -> Sequence[Form]:
        """Return the ways to write a link: first those within a host."""
        paths, written = self._paths
        urls, names, hosts = self.urls, self._names, self.host_of.tolist()
        heads = [path.partition("?")[0] for path in paths]
        folders = [head[: head.rindex("/") + 1] for head in heads]
        ups = ["../" * (folder.count("/") - 1) for folder in folders]

        def bare(base: int, target: int) -> str:
            folder = folders[target]
            name = paths[target][len(folder) :]
            if folders[base] != folder or name == "" or name[0] in "?:" or ":" in heads[target][len(folder) :]:
                return dotted(base, target)
            return name

        def dotted(base: int, target: int) -> str:
            folder = folders[target]
            return f"./{paths[target][len(folder) :]}" if folders[base] == folder else climbing(base, target)

        def climbing(base: int, target: int) -> str:
            return f"{ups[base]}{paths[target][1:]}" if ups[base] else f".{paths[target]}"

        def beyond_the_root(base: int, target: int) -> str:
            return f"{ups[base]}../..{written[target]}"

        def query(base: int, target: int) -> str:
            rest = paths[target][len(heads[target]) :]
            return rest if rest and heads[base] == heads[target] else paths[target]

        def nothing(base: int, target: int) -> str:
            return "" if base == target else paths[target]

        def detour(base: int, target: int) -> str:
            return f"/x/./y/%2E%2e/..{paths[target]}"

        def backslashes(base: int, target: int) -> str:
            return heads[target].replace("/", "\\") + paths[target][len(heads[target]) :]

        def with_scheme(base: int, target: int) -> str:
            return f"{names[hosts[base]][0]}:{paths[target]}"

        def upper(base: int, target: int) -> str:
            scheme, name, form = names[hosts[target]]
            shout = form.upper()
            shout = shout if shout.lower() == form else name.upper()
            return f"{scheme.upper()}://{shout}{paths[target]}"

        def people(base: int, target: int) -> str:
            scheme, _, form = names[hosts[target]]
            return f"{scheme}://{form}{written[target]}"

        def port(base: int, target: int) -> str:
            scheme, name, _ = names[hosts[target]]
            has_port = name.rpartition("]")[2].rfind(":") >= 0
            return f"{scheme}://{name}{'' if has_port else ':443' if scheme == 'https' else ':80'}{paths[target]}"

        def user(base: int, target: int) -> str:
            scheme, name, _ = names[hosts[target]]
            return f"{scheme}://kim{':s%40cret' if target % 2 else ''}@{name}{paths[target]}"

        def no_scheme(base: int, target: int) -> str:
            same = names[hosts[base]][0] == names[hosts[target]][0]
            return urls[target].partition(":")[2] if same else urls[target]

        def blanks(base: int, target: int) -> str:
            return f" \n{urls[target]}\t "

        def broken_up(base: int, target: int) -> str:
            url = urls[target]
            return f"{url[:5]}\n{url[5:12]}\t{url[12:]}"

        def root(base: int, target: int) -> str:
            return paths[target]

        def root_written(base: int, target: int) -> str:
            return written[target]

        def plain(base: int, target: int) -> str:
            return urls[target]

        def no_path(base: int, target: int) -> str:
            return urls[target].rstrip("/") if paths[target] == "/" else urls[target]

        def long_way(base: int, target: int) -> str:
            scheme, name, _ = names[hosts[target]]
            return f"{scheme}:\\\\{name}/./x/..{paths[target]}"

        inner = (root, bare, plain, root_written, climbing, dotted, beyond_the_root, query)
        inner += (nothing, detour, backslashes, with_scheme, no_scheme, upper, people, blanks)
        outer = (plain, people, upper, port, user, no_path, blanks, broken_up, long_way, no_scheme)
        return (*inner, *outer)


_INNER_ODDS = np.cumsum((0.28, 0.2, 0.13, 0.08, 0.08, 0.06, 0.02, 0.04, 0.02, 0.01, 0.01, 0.01, 0.01, 0.02, 0.02))
_OUTER_ODDS = np.cumsum((0.66, 0.1, 0.06, 0.02, 0.01, 0.05, 0.02, 0.01, 0.01))
_OUTER = len(_INNER_ODDS) + 1
_FULL_FORMS = len(_OUTER_ODDS)
"""All forms of links to other hosts but the last one begin with a scheme."""
_WITH_BLANKS = (_OUTER - 1, _OUTER + 6)
"""Forms that end with blanks: no fragment follows them."""


def canonical_path(written: str) -> str:
    """Return a path and query with everything escaped that the standard of the WHATWG escapes."""
    path, mark, query = written.partition("?")
    return quote(path, _SAFE_IN_PATH) + mark + quote(query, _SAFE_IN_QUERY)


def _twin_of(path: str, page: int) -> str:
    """Return the path of a page with a session, or with a campaign."""
    name, value = _IN_TWINS[page % 3], f"{page * 0x9E3779B1 % 2**32:08x}"
    if name == "jsessionid":
        path, mark, query = path.partition("?")
        return f"{path};{name}={value}{mark}{query}"
    return f"{path}{'&' if '?' in path else '?'}{name}={value}"
