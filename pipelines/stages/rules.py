"""The rules of a log: canonical URLs, page ids, weights of links, and categories of pages."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from dataclasses import dataclass, field

import numpy as np

from opicflow.schemas.arrays import Ints
from opicflow.schemas.pages import PageIds
from opicflow.schemas.plain_values import read_plain
from opicflow.schemas.url_patterns import check_patterns
from opicflow.schemas.urls import UrlRules

MOST_KIND_WEIGHT = 63.0
ORDINARY_WEIGHT = 1024
"""The weight of an ordinary link in an entry."""


@dataclass(frozen=True)
class LinkWeights:
    """The weight of each kind of link; 1 = an ordinary link. Internal = on the same host, or registrable domain."""

    internal: float = 1.0
    external: float = 1.0
    nofollow: float = 0.0
    same_site: str = "host"

    def __post_init__(self) -> None:
        """Refuse impossible weights."""
        for name in ("internal", "external", "nofollow"):
            weight = getattr(self, name)
            if not (math.isfinite(weight) and 0 <= weight <= MOST_KIND_WEIGHT):
                raise ValueError(
                    f"the weight of {name} links is {weight}: give a number from 0 to {MOST_KIND_WEIGHT:g}"
                )
        if self.same_site not in ("host", "domain"):
            raise ValueError(f"same_site is {self.same_site!r}: give host or domain")

    def quantised(self) -> Ints:
        """Return the weights of internal, external and nofollow links in 1/1024."""
        return np.array([round(w * ORDINARY_WEIGHT) for w in (self.internal, self.external, self.nofollow)], np.int64)


MEDIA_CATEGORIES = ("unknown", "html", "xml", "feed", "pdf", "other")
"""The categories of media types, at the index of their number."""


@dataclass(frozen=True)
class Categories:
    """The categories of pages: by media type, by URL pattern (`*` = any run of characters), by both, or one for all.

    A page belongs to the first pattern that it matches. Categories are numbers: media types first, then the patterns.
    """

    by_media: bool = False
    patterns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse impossible patterns."""
        check_patterns(self.patterns)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each category."""
        return (*MEDIA_CATEGORIES, *self.patterns)

    @property
    def count(self) -> int:
        """The number of categories; 1 without media types and patterns."""
        return len(self.names) if self.by_media or self.patterns else 1

    def number(self, name: str) -> int:
        """Return the category with this name. Raises `ValueError` if there is none."""
        names = self.names[: self.count]
        if name not in names:
            if self.count == 1:
                raise ValueError(f"there is no category {name[:60]!r}: make categories with --by-media or --category")
            choices = textwrap.shorten(", ".join(names), 500, placeholder=" …")
            raise ValueError(f"the category {name[:60]!r} is none of: {choices}")
        return names.index(name)


@dataclass(frozen=True)
class Rules:
    """The rules of a log: canonical URLs, page ids, weights of links, and categories of pages."""

    urls: UrlRules = field(default_factory=UrlRules)
    links: LinkWeights = field(default_factory=LinkWeights)
    categories: Categories = field(default_factory=Categories)
    page_ids: PageIds = field(default_factory=PageIds)

    def to_json(self) -> dict[str, object]:
        """Return the rules as JSON values, but those of page ids: they never change, and may have a secret key."""
        return {name: dataclasses.asdict(getattr(self, name)) for name in ("urls", "links", "categories")}

    @classmethod
    def from_json(cls, values: object, page_ids: PageIds) -> Rules:
        """Read rules from JSON values; raises `ValueError`. Those of page ids are stored elsewhere."""
        stored = read_plain(_StoredRules, values)
        return cls(stored.urls, stored.links, stored.categories, page_ids)


@dataclass
class _StoredRules:
    """Rules without those of page ids."""

    urls: UrlRules
    links: LinkWeights
    categories: Categories
