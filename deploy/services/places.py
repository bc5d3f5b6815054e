"""Where a service runs: its folder, its ports, its jars; and what every service has to say about itself."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import Any, Protocol
from urllib.request import ProxyHandler, build_opener

HOST = "127.0.0.1"
# Below the ports that systems give to outgoing connections (Linux: from 32768): while a broker is down, no client that
# tries again and again to reach it can be given the broker's own port.
PORTS = range(20_000, 32_000)


@dataclass(frozen=True)
class Place:
    """What a service may use: a folder of its own, ports by name, the folder of its jars, the program `java`."""

    folder: Path
    ports: dict[str, int]
    jars: Path
    java: str

    def address(self, port: str) -> str:
        """Host and port, by the name of the port."""
        return f"{HOST}:{self.ports[port]}"

    def jvm(self, main: Sequence[str], *options: str) -> list[str]:
        """The command that runs a class or jar in Java. Whatever Java writes by itself goes into the folder."""
        files = [f"-Djava.io.tmpdir={self.folder}", f"-XX:ErrorFile={self.folder}/java-error.log", "-XX:-UsePerfData"]
        return [self.java, *files, *options, *main]


class Service(Protocol):
    """One of the services. `ports` are the names of the ports that it needs, `usual_ports` where some are elsewhere."""

    name: str
    title: str
    ports: tuple[str, ...]
    usual_ports: tuple[tuple[str, int], ...]

    def prepare(self, place: Place) -> None:
        """Write what the service needs into its folder, once, before it runs for the first time."""

    def commands(self, place: Place) -> dict[str, list[str]]:
        """The processes of the service: the name of each, and its command."""

    def check(self, place: Place) -> None:
        """Ask the service for what it is there for. Any exception says that it is not ready."""

    def usage(self, place: Place) -> list[str]:
        """What to put on a command line to use it, one line for each way."""


def free_ports(number: int) -> list[int]:
    """So many different ports of this machine that nothing listens at just now."""
    found: list[int] = []
    for port in SystemRandom().sample(PORTS, len(PORTS)):
        if len(found) == number:
            break
        if is_free(port):
            found.append(port)
    return found


def is_free(port: int) -> bool:
    """Whether nothing listens at a port just now."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError:
            return False
    return True


def connect(port: int) -> socket.socket:
    """A connection to a port of this machine, which gives up after two seconds of silence."""
    return socket.create_connection((HOST, port), timeout=2)


def get_json(url: str) -> Any:
    """What a service answers, at once or not at all, past any proxy."""
    with build_opener(ProxyHandler({})).open(url, timeout=2) as answer:
        return json.load(answer)


def write_secret(path: Path, data: bytes) -> Path:
    """Write a file that only its owner can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    return path
