"""PostgreSQL and Redis for tests, from the packages of the system: a test that finds none is skipped with a message."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_LIMIT_SECONDS = 60


@contextmanager
def postgres() -> Iterator[Callable[[bytes], bytes]]:
    """Run a server of PostgreSQL on a socket in a folder of its own. Yields what sends a script by psql.

    It also sets the variables of the environment by which psql finds the server.
    """
    server = shutil.which("postgres") or next(map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))), "")
    if not server or shutil.which("psql") is None:
        pytest.skip("no services: no PostgreSQL with psql: apt install postgresql")
    programs = Path(server).parent
    user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []  # the server refuses to run as root
    with tempfile.TemporaryDirectory(prefix="opicflow-postgres-") as folder, pytest.MonkeyPatch.context() as patch:
        if user:
            shutil.chown(folder, "postgres")
        data = f"{folder}/data"

        def run(*words: str) -> None:
            done = subprocess.run([*user, *words], cwd="/", capture_output=True, timeout=_LIMIT_SECONDS, check=False)
            assert done.returncode == 0, done.stderr

        run(str(programs / "initdb"), "-D", data, "-U", "opicflow", "-A", "trust", "--no-sync", "-E", "UTF8")
        settings = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
        run(str(programs / "pg_ctl"), "-D", data, "-w", "-l", f"{folder}/log", "-o", settings, "start")
        try:
            for name, value in (("HOST", folder), ("USER", "opicflow"), ("DATABASE", "postgres")):
                patch.setenv(f"PG{name}", value)
            yield lambda script: _sent(["psql", "-q", "-X", "-v", "ON_ERROR_STOP=1"], script)
        finally:
            run(str(programs / "pg_ctl"), "-D", data, "-m", "immediate", "stop")


@contextmanager
def redis() -> Iterator[tuple[Callable[..., bytes], str]]:
    """Run a server of Redis. Yields what runs redis-cli with some words and some input, and the port."""
    if shutil.which("redis-server") is None:
        pytest.skip("no services: no Redis: apt install redis-server")
    with tempfile.TemporaryDirectory(prefix="opicflow-redis-") as folder:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        options = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        with subprocess.Popen(["redis-server", *options], stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                assert any("Ready to accept connections" in line for line in server.stdout)
                yield (lambda words, data=b"": _sent(["redis-cli", "-p", port, *words], data)), port
            finally:
                server.terminate()


def _sent(words: list[str], data: bytes) -> bytes:
    return subprocess.run(words, input=data, capture_output=True, check=True, timeout=_LIMIT_SECONDS).stdout
