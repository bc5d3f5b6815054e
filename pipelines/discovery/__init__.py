"""Which unread page first: worth from importance and siblings, and a learnt share of orders that explore."""

from opicflow.pipelines.discovery.discovery import Discovery, PagesRead
from opicflow.pipelines.discovery.rule import DiscoveryPages, DiscoveryRule
from opicflow.pipelines.discovery.worth import PageWorth, page_worth

__all__ = [
    "Discovery",
    "DiscoveryPages",
    "DiscoveryRule",
    "PageWorth",
    "PagesRead",
    "page_worth",
]
