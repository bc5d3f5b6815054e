"""The page that a request of Scrapy fetches, and the quality that the spider gives it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import lru_cache

from scrapy import Request

from opicflow.schemas.urls import NO_RULES, NotAPage, UrlRules, canonical

QUALITY_KEY = "opicflow_quality"
"""The key in a request's meta for the quality of its page, before or after it was fetched."""
_LOGGER = logging.getLogger(__name__)


class RequestPages:
    """The pages of requests and of URLs, under the rules of a crawl."""

    def __init__(self, rules: UrlRules = NO_RULES) -> None:
        self._rules = rules

    def of_request(self, request: Request) -> str | None:
        """Return the canonical URL of the page that a request fetches; None if it is not for a page."""
        return None if request.method != "GET" or request.body else self.of_url(request.url)

    def of_url(self, url: str) -> str | None:
        """Return the canonical form of a URL; None if it is not one of a page."""
        return _canonical(url, self._rules)

    def of_urls(self, urls: Iterable[str]) -> list[str]:
        """Return the canonical URLs of pages; other URLs are left out."""
        return [page for url in urls if (page := self.of_url(url)) is not None]


@lru_cache(1 << 16)
def _canonical(url: str, rules: UrlRules) -> str | None:
    """Return what `of_url` does. Most links of a crawl come many times."""
    try:
        return canonical(url, None, rules).decode()
    except NotAPage:
        return None


def host_of(url: str) -> str:
    """Return the host of a canonical URL, with its port if it has one."""
    return url.split("/", 3)[2]


def quality_of(request: Request) -> float | None:
    """Return the quality that a spider has set in the meta of a request; None if it has set none."""
    quality = request.meta.get(QUALITY_KEY)
    if quality is None:
        return None
    if isinstance(quality, float | int) and 0.0 <= quality <= 1.0:
        return float(quality)
    _LOGGER.warning("opicflow: %s of %s is no number from 0 to 1: %r", QUALITY_KEY, request.url, quality)
    return None
