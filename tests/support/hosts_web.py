"""A made-up web of many hosts for crawls by any crawler: a proxy on this machine answers for every host.

A crawler that takes it as its proxy sees the hosts by their names, and keeps its delays between fetches of a host.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

from opicflow.pipelines.lab.web.directories import DirectoryStyle, DirectoryWeb, directory_web
from support.http_server import HttpAnswer, HttpRequest, answering


class HostsWeb:
    """The pages of a web of directories, by plain HTTP, and the order in which they were fetched."""

    def __init__(self, web: DirectoryWeb, answer_seconds: float) -> None:
        self.web, self.answer_seconds = web, answer_seconds
        self.urls = [url.decode().replace("https://", "http://") for url in web.urls]
        self.numbers = {url: number for number, url in enumerate(self.urls)}
        self.fetched: list[int] = []
        self.proxy = ""

    def body(self, number: int) -> bytes:
        """Return a page: its links, and some text."""
        graph = self.web.graph
        targets = graph.targets[graph.starts[number] : graph.starts[number + 1]].tolist()
        anchors = [f'<a href="{self.urls[target]}">{target}</a>' for target in targets]
        return f"<html><body><h1>Page {number}</h1>{' '.join(anchors)}{'<p>text</p>' * 50}</body></html>".encode()

    def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answer a fetch."""
        number = self.numbers.get(request.path)
        Event().wait(self.answer_seconds)
        if number is None:
            return HttpAnswer(404, b"", "text/html; charset=utf-8")
        self.fetched.append(number)
        return HttpAnswer(200, self.body(number), "text/html; charset=utf-8")


@contextmanager
def served_hosts(pages: int, hosts: int, seed: int, answer_seconds: float = 0.02) -> Iterator[HostsWeb]:
    """Serve a web of so many pages on so many hosts, whose sizes differ much, by a proxy on a free port."""
    hosts_web = HostsWeb(directory_web(pages, seed, DirectoryStyle(pages_per_site=pages / hosts)), answer_seconds)
    with answering(hosts_web.answer, keeps_alive=True) as hosts_web.proxy:
        yield hosts_web
