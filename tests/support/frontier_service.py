"""A URL Frontier in memory that does what the published service (2.6, MemoryFrontierService) does, and faults."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from opicflow.connectors.urlfrontier.frontier_messages import SERVICE, message_class


@dataclass
class HeldPage:
    """A page in a queue: from when it may be fetched, its metadata, and until when it counts as under way."""

    date: int
    metadata: dict[str, list[str]]
    held_until: int = -1


@dataclass
class FrontierQueue:
    """The pages of a queue that wait, and those that once were not to be fetched again, for ever."""

    waiting: dict[str, HeldPage] = field(default_factory=dict)
    completed: set[str] = field(default_factory=set)


class FrontierService:
    """The service. Its time is `now`. `takes` items are taken before it breaks off; `fails` items fail first."""

    def __init__(self, now: int) -> None:
        """An empty frontier."""
        self.now = now
        self.queues: dict[tuple[str, str], FrontierQueue] = {}
        self.takes: int | None = None
        self.fails = 0
        self.skips: set[str] = set()
        self.acks_are_lost = 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.read = 0
        self._lock = threading.Lock()

    def queue(self, key: str, crawl: str = "DEFAULT") -> FrontierQueue:
        """Return a queue; it is made if it is not there."""
        return self.queues.setdefault((crawl, key), FrontierQueue())

    # -- what a crawler does --

    def discover(self, url: str, key: str, crawl: str = "DEFAULT", **metadata: list[str]) -> str:
        """Put a discovered page: one that is known is skipped."""
        item = message_class("URLItem")()
        _fill(item.discovered.info, url, key, crawl, metadata)
        return self._put(item)

    def give(self, key: str, most: int, crawl: str = "DEFAULT", hold_seconds: int = 30) -> list[str]:
        """Give the pages of a queue that are due, the oldest first, and hold them."""
        with self._lock:
            waiting = self.queue(key, crawl).waiting
            due = sorted((page.date, url) for url, page in waiting.items() if page.date <= self.now)
            given = [url for _, url in due if waiting[url].held_until <= self.now][:most]
            for url in given:
                waiting[url].held_until = self.now + hold_seconds
            return given

    def update(self, url: str, key: str, date: int, crawl: str = "DEFAULT", **metadata: list[str]) -> str:
        """Put a known page, as a crawler does after it fetched it."""
        item = message_class("URLItem")()
        _fill(item.known.info, url, key, crawl, metadata)
        item.known.refetchable_from_date = date
        return self._put(item)

    # -- the calls --

    def list_crawls(self, request: Any, context: Any) -> Any:
        """Answer with the names of crawls."""
        return message_class("StringList")(values=sorted({crawl for crawl, _ in self.queues}))

    def get_stats(self, request: Any, context: Any) -> Any:
        """Answer with the counts of a queue."""
        queue = self.queues.get((request.crawlID.strip() or "DEFAULT", request.key))
        if queue is None:
            return message_class("Stats")()
        held = sum(page.held_until > self.now for page in queue.waiting.values())
        return message_class("Stats")(size=len(queue.waiting), inProcess=held, numberOfQueues=1)

    def get_url_status(self, request: Any, context: Any) -> Any:
        """Answer with a known page. One that is not fetched again has no metadata."""
        self.may_go_on.wait(60)
        queue = self.queues.get((request.crawlID.strip() or "DEFAULT", request.key), FrontierQueue())
        item = message_class("URLItem")()
        if request.url in queue.completed:
            item.known.info.url = request.url
        elif request.url in queue.waiting:
            page = queue.waiting[request.url]
            _fill(item.known.info, request.url, request.key, request.crawlID, page.metadata)
            item.known.refetchable_from_date = page.date
        else:
            context.abort(grpc.StatusCode.NOT_FOUND, "")
        return item

    def put_urls(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        """Acknowledge items by their IDs, the last of a stream first."""
        acks = []
        for item in requests:
            self.may_go_on.wait(60)
            self.read += 1
            if self.takes == 0:
                context.abort(grpc.StatusCode.UNAVAILABLE, "killed")
            self.takes = None if self.takes is None else self.takes - 1
            status = "FAIL" if self.fails > 0 else self._put(item)
            self.fails -= 1
            if self.acks_are_lost:
                self.acks_are_lost -= 1
            else:
                acks.append(message_class("AckMessage")(ID=item.ID or item.known.info.url, status=status))
        yield from reversed(acks)

    def _put(self, item: Any) -> str:
        is_known = item.WhichOneof("item") == "known"
        info = item.known.info if is_known else item.discovered.info
        if info.url in self.skips:
            return "SKIPPED"
        with self._lock:
            queue = self.queue(info.key or info.url.split("/")[2].split(":")[0], info.crawlID.strip() or "DEFAULT")
            if not is_known and (info.url in queue.waiting or info.url in queue.completed):
                return "SKIPPED"
            queue.waiting.pop(info.url, None)  # with it, who has it is forgotten
            if is_known and item.known.refetchable_from_date == 0:
                queue.completed.add(info.url)
            else:
                date = item.known.refetchable_from_date if is_known else self.now
                metadata = {name: list(values.values) for name, values in info.metadata.items()}
                queue.waiting[info.url] = HeldPage(date, metadata)
        return "OK"


def _fill(info: Any, url: str, key: str, crawl: str, metadata: dict[str, list[str]]) -> None:
    info.url, info.key, info.crawlID = url, key, crawl
    for name, values in metadata.items():
        info.metadata[name].values.extend(values)


@contextmanager
def served(service: FrontierService) -> Iterator[str]:
    """Serve it on a free port. Yields the address."""
    methods = {
        "ListCrawls": (grpc.unary_unary_rpc_method_handler, service.list_crawls, "Local"),
        "GetStats": (grpc.unary_unary_rpc_method_handler, service.get_stats, "QueueWithinCrawlParams"),
        "GetURLStatus": (grpc.unary_unary_rpc_method_handler, service.get_url_status, "URLStatusRequest"),
        "PutURLs": (grpc.stream_stream_rpc_method_handler, service.put_urls, "URLItem"),
    }
    handlers = {
        name: make(
            call,
            request_deserializer=message_class(request).FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        for name, (make, call, request) in methods.items()
    }
    with ThreadPoolExecutor(4) as threads:
        server = grpc.server(threads)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            service.may_go_on.set()
            server.stop(None).wait()
