"""A fake of Beam's job server: it answers as every gRPC server does, and has no service."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc


@contextmanager
def fake_job_server() -> Iterator[str]:
    """Run the server, and yield HOST:PORT."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0)
