"""A frontier inside a crawler: what to fetch next, by the ledger and its crawl orders. No Beam, no Kafka.

>>> from opicflow.pipelines.crawl.frontier import Frontier
>>> with Frontier.open("/tmp/frontier", clock=lambda: 1_800_000_000.0) as frontier:  # doctest: +SKIP
...     frontier.announce(["https://example.org/"])
...     frontier.next(10)
['https://example.org/']
"""

from opicflow.pipelines.crawl.frontier.frontier import Frontier
from opicflow.pipelines.crawl.frontier.growing_pages import GrowingPages

__all__ = ["Frontier", "GrowingPages"]
