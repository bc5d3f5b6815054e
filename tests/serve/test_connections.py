"""Clients that send half a request, or very many requests, keep neither viewers nor health checks out."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
import requests

from opicflow.pipelines.serve import connections
from opicflow.pipelines.serve.view import View
from support.views import SMALL, GivenView, served

HALVES = [
    b"",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n",
    b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\ntok",
]


@contextmanager
def opened(address: str, sent: bytes, count: int) -> Iterator[list[socket.socket]]:
    host, _, port = address.removeprefix("http://").partition(":")
    with ExitStack() as stack:
        found = [stack.enter_context(socket.create_connection((host, int(port)), 60)) for _ in range(count)]
        for one in found:
            one.sendall(sent)
        yield found


@pytest.mark.parametrize("sent", HALVES, ids=["nothing", "half a head", "half a body"])
def test_clients_that_send_half_a_request_keep_nobody_out(sent: bytes) -> None:
    with served(GivenView(), token="correct-horse-battery") as at, opened(at, sent, 210):
        assert requests.get(f"{at}/healthz", timeout=60).text == "ok\n"
        answer = requests.get(f"{at}/", headers={"Authorization": "Bearer correct-horse-battery"}, timeout=60)
        assert answer.status_code == 200


@pytest.mark.parametrize("sent", HALVES, ids=["nothing", "half a head", "half a body"])
def test_a_request_that_does_not_arrive_ends_its_connection(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.05)
    with served(GivenView(), token="correct-horse-battery") as at, opened(at, sent, 1) as (client,):
        assert client.recv(1 << 16) == b"", "the server has closed it, without an answer"


def test_a_whole_request_may_take_long_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.05)

    class SlowView(GivenView):
        def view(self) -> View:
            threading.Event().wait(0.5)
            return SMALL

    with served(SlowView()) as at:
        assert requests.get(f"{at}/api/summary", timeout=60).status_code == 200


def test_one_other_machine_has_so_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_OF_ADDRESS", 3)
    monkeypatch.setattr(connections, "is_this_machine", lambda address: False)
    with served(GivenView()) as at, opened(at, b"", 3), pytest.raises(requests.ConnectionError):
        requests.get(f"{at}/healthz", timeout=60)
    monkeypatch.undo()
    with served(GivenView()) as at, opened(at, b"", 150):
        assert requests.get(f"{at}/healthz", timeout=60).status_code == 200, "this machine has no limit of its own"


def test_all_machines_have_so_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 3)
    with served(GivenView()) as at:
        with opened(at, b"", 3), pytest.raises(requests.ConnectionError):
            requests.get(f"{at}/healthz", timeout=60)
        assert requests.get(f"{at}/healthz", timeout=60).status_code == 200


def test_health_checks_are_answered_while_all_requests_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_REQUESTS", 2)
    is_asked, goes_on = threading.Semaphore(0), threading.Event()

    class WaitingView(GivenView):
        def view(self) -> View:
            is_asked.release()
            goes_on.wait(60)
            return SMALL

    with served(WaitingView()) as at, ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(requests.get, f"{at}/api/summary", timeout=60) for _ in range(2)]
        for _ in waiting:
            assert is_asked.acquire(timeout=60)
        assert requests.get(f"{at}/healthz", timeout=60).status_code == 200
        assert requests.get(f"{at}/api/summary", timeout=60).status_code == 503
        goes_on.set()
        assert [one.result().status_code for one in waiting] == [200, 200]
