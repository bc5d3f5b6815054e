"""Group `urls`: links as pages have them, made canonical and hashed in batches; beside libraries that join one by one.

Of the links 60 % are relative, 10 % have a fragment, 5 % have letters that are not ASCII, 5 % are in upper case, and
20 % are canonical as they are. A page has 30 links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from random import Random
from urllib.parse import urldefrag, urljoin

import ada_url
import numpy as np

from benchmarks.harness import Figure, Scale, check, race, say, versus
from opicflow.schemas.arrays import Bytes, Ints
from opicflow.schemas.url_forms import PAGE
from opicflow.schemas.urls import TRACKING_PARAMETERS, Canonicaliser, CanonicalUrls, UrlRules

_LINKS, _HOSTS = 30, 3_000
_PAGES_AT_ONCE = 500
"""Some 15,000 URLs are in a batch of events of a megabyte."""
_FOREIGN = ("K\u00f6ln", "stra\u00dfe", "\u4e2d\u6587", "\u043a\u043d\u0438\u0433\u0430")
SEED = 1

Join = Callable[[str, str], object]
"""Makes a page and a link the URL that it leads to."""


def measure(scale: Scale) -> Iterator[Figure]:
    """Yield all figures of the group."""
    pages = scale.pick(50, 4_000)
    raw = _RawLinks(pages, SEED)
    batches = [raw.batch(first) for first in range(0, pages, _PAGES_AT_ONCE)]
    canonicaliser = Canonicaliser()
    say("urls: is every form that of the library?")
    for first, batch in zip(range(0, pages, _PAGES_AT_ONCE), batches, strict=True):
        check(_forms_of(canonicaliser.canonicalise(*batch)) == raw.forms(first), "all forms are those of ada")
    rounds, few = scale.pick(1, 5), raw.pages[: scale.pick(5, 200)]

    def ours(of: Canonicaliser) -> Callable[[int], float]:
        return lambda number: float(sum(len(of.canonicalise(*batch).states) for batch in batches))

    yield from _beside_others(rounds, ours(canonicaliser), few)
    whole, dropping = race(rounds, ours(canonicaliser), ours(Canonicaliser(UrlRules(TRACKING_PARAMETERS))))
    how = "the same links with --drop-parameters tracking; without"
    yield versus("urls.dropping", dropping, "URLs/s", whole, how)
    plain = [raw.batch(first, is_plain=True) for first in range(0, pages, _PAGES_AT_ONCE)]
    canonical, whole = race(
        rounds,
        lambda number: float(sum(len(canonicaliser.canonicalise(*batch).states) for batch in plain)),
        ours(canonicaliser),
    )
    yield versus("urls.plain", canonical, "URLs/s", whole, "the same links in canonical form; as pages have them")


def _beside_others(rounds: int, ours: Callable[[int], float], few: list[tuple[str, list[str]]]) -> Iterator[Figure]:
    """Compare with libraries, which get some of the links."""
    for name, join in _joins().items():
        if join is None:
            say(f"urls: not compared: {name} is not installed")
            continue
        say(f"urls: {name}")

        def theirs(number: int, join: Join = join) -> float:
            for page, links in few:
                for link in links:
                    with suppress(ValueError):
                        join(page, link)
            return float(sum(len(links) for _, links in few))

        mine, other = race(rounds, ours, theirs)
        how = f"links as pages have them, 1e6/x = µs each, with their hashes; {name} from Python, one by one"
        yield versus(f"urls.raw_vs_{name}", mine, "URLs/s", other, how)


def _joins() -> dict[str, Join | None]:
    """Return how each library resolves a link; None for one that is not installed."""
    joins: dict[str, Join | None] = {
        "ada": lambda page, link: ada_url.join_url(page, link.partition("#")[0]),
        "urllib": lambda page, link: urldefrag(urljoin(page, link)).url,
        "yarl": None,
        "w3lib": None,
    }
    try:
        yarl = import_module("yarl").URL
        joins["yarl"] = lambda page, link: str(yarl(page).join(yarl(link)).with_fragment(None))
        canonicalize_url = import_module("w3lib.url").canonicalize_url
        joins["w3lib"] = lambda page, link: canonicalize_url(urljoin(page, link))
    except ImportError:
        pass
    return joins


class _RawLinks:
    """Pages with links, made up from a seed."""

    def __init__(self, pages: int, seed: int) -> None:
        self._random = Random(seed)
        self.pages = [self._page() for _ in range(pages)]

    def _page(self) -> tuple[str, list[str]]:
        return self._origin() + self._path(), [self._link() for _ in range(_LINKS)]

    def _origin(self) -> str:
        return f"https://www.host-{int(_HOSTS * self._random.random() ** 3)}.example"

    def _path(self) -> str:
        number = int(1_000 * self._random.random() ** 2)
        forms = (
            f"/section-{number % 7}/page-{number}.html",
            f"/wiki/Page_{number}",
            f"/{number}/",
            f"/view?id={number}&lang=en",
        )
        return self._random.choice(forms)

    def _link(self) -> str:
        chance, origin, path = self._random.random(), self._origin(), self._path()
        if chance < 0.6:
            return self._random.choice((path, path, path[1:], f"../{path[1:]}", f"./{path[1:]}", f"?{path[1:]}"))
        if chance < 0.7:
            return f"{origin}{path}#section-{path.count('1')}"
        if chance < 0.75:
            return f"{origin}/{self._random.choice(_FOREIGN)}{path}"
        return f"{origin.upper()}{path}" if chance < 0.8 else origin + path

    def batch(self, first: int, is_plain: bool = False) -> tuple[Bytes, Ints, Ints, Ints]:
        """Return pages and their links in columns: text, begins, ends, and the row of the page of each."""
        given = []
        for page, links in self.pages[first : first + _PAGES_AT_ONCE]:
            given += [part.encode() for part in ([page, *self._forms(page, links)] if is_plain else [page, *links])]
        ends = np.cumsum([len(part) for part in given], dtype=np.int64)
        begins = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
        rows = np.arange(len(given))
        return np.frombuffer(b"".join(given), np.uint8), begins, ends, rows - rows % (_LINKS + 1)

    def forms(self, first: int) -> list[bytes]:
        """Return the forms of the library for the same rows."""
        return [
            form.encode()
            for page, links in self.pages[first : first + _PAGES_AT_ONCE]
            for form in (page, *self._forms(page, links))
        ]

    def _forms(self, page: str, links: list[str]) -> list[str]:
        return [ada_url.join_url(page, link.partition("#")[0]) for link in links]


def _forms_of(urls: CanonicalUrls) -> list[bytes]:
    text = urls.text.tobytes()
    check(bool((urls.states == PAGE).all()), "every link leads to a page")
    return [text[begin:end] for begin, end in zip(urls.begins.tolist(), urls.ends.tolist(), strict=True)]
