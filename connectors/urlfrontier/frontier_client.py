"""A client of URL Frontier: reads its pages and queues, and sends pages to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple

import grpc

from opicflow.connectors.urlfrontier.frontier_messages import SERVICE, FrontierRefused, message_class

_CALLS_AT_ONCE = 128
_ATTEMPTS = 3
"""How often an item is sent if the service allows to send it again."""


class KnownPage(NamedTuple):
    """A frontier's record of a page: from when it may be fetched (seconds since 1970; 0: never) and its metadata."""

    date: int
    metadata: Mapping[str, Sequence[str]]


class PageToSend(NamedTuple):
    """A page for the queue of this key, with the whole of its metadata, which replaces the old."""

    url: str
    key: str
    date: int
    metadata: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class FrontierClient:
    """The frontier at an address, for one crawl. Every call ends after `limit_seconds`, or is a `FrontierRefused`."""

    address: str
    crawl: str = ""
    limit_seconds: float = 60.0
    _channel: Any = field(init=False)

    def __post_init__(self) -> None:
        """Prepare the connection. It is made by the first call."""
        object.__setattr__(self, "_channel", grpc.insecure_channel(self.address))

    def __enter__(self) -> FrontierClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._channel.close()

    def crawls(self) -> list[str]:
        """Return the names of all crawls that have queues."""
        (answer,) = self._each("ListCrawls", [message_class("Local")()], "StringList")
        return sorted(answer.values)

    def queues(self, keys: Sequence[str]) -> list[Any]:
        """Return the statistics of the queues with these keys (`numberOfQueues` is 0 if there is none)."""
        request = message_class("QueueWithinCrawlParams")
        return list(self._each("GetStats", [request(key=key, crawlID=self.crawl) for key in keys], "Stats"))

    def known(self, pages: Sequence[tuple[str, str]]) -> list[KnownPage | None]:
        """Return the frontier's records of pages, given the URL and the key of the queue of each. None: no record."""
        request = message_class("URLStatusRequest")
        requests = [request(url=url, key=key, crawlID=self.crawl) for url, key in pages]
        return [_known(answer) for answer in self._each("GetURLStatus", requests, "URLItem")]

    def send(self, pages: Sequence[PageToSend]) -> list[PageToSend]:
        """Send pages, and wait until each is acknowledged. Returns those that the service does not take.

        The service takes as many at a time as it can: the others wait here.
        """
        refused: list[PageToSend] = []
        left = list(pages)
        for _ in range(_ATTEMPTS):
            if not left:
                return refused
            status_of = self._sent(left)
            refused += [page for page, status in zip(left, status_of, strict=True) if status == "SKIPPED"]
            left = [page for page, status in zip(left, status_of, strict=True) if status == "FAIL"]
        if left:
            raise FrontierRefused(f"{self}: {len(left):,} pages failed, such as {left[0].url[:200]}: push again")
        return refused

    def _sent(self, pages: list[PageToSend]) -> list[str]:
        """Send pages in one stream, and return their statuses. Acknowledgements come in any order."""
        acks = message_class("AckMessage")
        call = self._channel.stream_stream(
            f"/{SERVICE}/PutURLs",
            request_serializer=message_class("URLItem").SerializeToString,
            response_deserializer=acks.FromString,
        )
        statuses: dict[str, str] = {}
        try:
            for ack in call(self._items(pages), timeout=self.limit_seconds):
                statuses[ack.ID] = acks.Status.Name(ack.status)
        except grpc.RpcError as problem:
            raise self._problem(problem) from None
        return [statuses.get(str(number), "FAIL") for number in range(len(pages))]

    def _items(self, pages: list[PageToSend]) -> Iterator[Any]:
        item = message_class("URLItem")
        for number, page in enumerate(pages):
            one = item(ID=str(number))
            info = one.known.info
            info.url, info.key, info.crawlID = page.url, page.key, self.crawl
            for name, values in page.metadata.items():
                info.metadata[name].values.extend(values)
            one.known.refetchable_from_date = page.date
            yield one

    def _each(self, method: str, requests: Sequence[Any], answer: str) -> Iterator[Any]:
        """Yield the answer to each request, in order; None for an item not found. Some are under way at a time."""
        call = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=message_class(answer).FromString,
        )
        for first in range(0, len(requests), _CALLS_AT_ONCE):
            some = requests[first : first + _CALLS_AT_ONCE]
            futures = [call.future(request, timeout=self.limit_seconds) for request in some]
            for future in futures:
                try:
                    yield future.result()
                except grpc.RpcError as problem:
                    if problem.code() != grpc.StatusCode.NOT_FOUND:
                        raise self._problem(problem) from None
                    yield None

    def _problem(self, problem: Any) -> FrontierRefused:
        detail = " ".join(str(problem.details()).split())[:200]
        return FrontierRefused(
            f"{self}: {problem.code().name} ({detail}): check that the service runs there, and push again: pages "
            "that it acknowledged stay"
        )

    def __str__(self) -> str:
        """Return the address as users give it."""
        return f"urlfrontier://{self.address}"


def _known(answer: Any) -> KnownPage | None:
    if answer is None:
        return None
    metadata = {name: list(values.values) for name, values in answer.known.info.metadata.items()}
    return KnownPage(answer.known.refetchable_from_date, metadata)
