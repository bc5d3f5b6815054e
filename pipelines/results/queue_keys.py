"""The key of a page's queue in the frontier of a crawler, and of its shard in the crawler's index."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from opicflow.pipelines.results.record_columns import site_of_host

_HOST = re.compile(r"[^:/?#]+://(?:[^/?#@]*@)?(\[[^\]]*\]|[^:/?#]*)")
_MOST_HOSTS = 1 << 16

QUEUE_KEYS = ("host", "domain")


def queue_key(by: str) -> Callable[[str], str]:
    """Return what gives a URL its key: its host without a port, or the registrable domain of this host."""
    return host_of_url if by == "host" else _domain_of_url


def host_of_url(url: str) -> str:
    """Return the host of a URL, without a port; an IPv6 address with its brackets. Empty if it has none."""
    found = _HOST.match(url)
    return found[1] if found else ""


def _domain_of_url(url: str) -> str:
    return _domain_of_host(host_of_url(url))


@lru_cache(_MOST_HOSTS)
def _domain_of_host(host: str) -> str:
    return site_of_host(host)
