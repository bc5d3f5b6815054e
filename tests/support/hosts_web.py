"""A made-up web of many hosts for crawls by any crawler: a proxy on this machine answers for every host.

A crawler that takes it as its proxy sees the hosts by their names, and keeps its delays between fetches of a host.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from threading import Event

from opicflow.pipelines.lab.web.directories import DirectoryStyle, DirectoryWeb, directory_web
from support.scrapy_web import answered_by


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


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hosts: HostsWeb

    def do_GET(self) -> None:
        number = self.hosts.numbers.get(self.path)
        Event().wait(self.hosts.answer_seconds)
        if number is not None:
            self.hosts.fetched.append(number)
        body = b"" if number is None else self.hosts.body(number)
        status = "404 Not Found" if number is None else "200 OK"
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n\r\n"
        self.wfile.write(head.encode() + body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served_hosts(pages: int, hosts: int, seed: int, answer_seconds: float = 0.02) -> Iterator[HostsWeb]:
    """Serve a web of so many pages on so many hosts, whose sizes differ much, by a proxy on a free port."""
    hosts_web = HostsWeb(directory_web(pages, seed, DirectoryStyle(pages_per_site=pages / hosts)), answer_seconds)
    with answered_by(type("Handler", (_Handler,), {"hosts": hosts_web})) as hosts_web.proxy:
        yield hosts_web
