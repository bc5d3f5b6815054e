"""An instance of a service on this machine: its folder, ports and jars; and the protocol of a service."""

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
# Below the ephemeral ports (Linux: from 32768): otherwise, while a broker is down, the system could assign its port to
# a client that tries to reconnect to it.
PORTS = range(20_000, 32_000)


@dataclass(frozen=True)
class Instance:
    """The folder of an instance, its ports by name, the folder of its jars, and the program `java`."""

    folder: Path
    ports: dict[str, int]
    jars: Path
    java: str

    def address(self, port: str) -> str:
        """Return host and port for the name of a port."""
        return f"{HOST}:{self.ports[port]}"

    def jvm(self, main: Sequence[str], *options: str) -> list[str]:
        """Return the command that runs a class or jar in Java. Files that Java writes go into the folder."""
        files = [f"-Djava.io.tmpdir={self.folder}", f"-XX:ErrorFile={self.folder}/java-error.log", "-XX:-UsePerfData"]
        return [self.java, *files, *options, *main]


class Service(Protocol):
    """A service. `ports` are the names of the ports that it needs, `usual_ports` the numbers that users expect."""

    name: str
    title: str
    ports: tuple[str, ...]
    usual_ports: tuple[tuple[str, int], ...]

    def prepare(self, instance: Instance) -> None:
        """Write the files of the service into its folder, before its first start."""

    def commands(self, instance: Instance) -> dict[str, list[str]]:
        """Return the commands of the processes, by their names."""

    def check(self, instance: Instance) -> None:
        """Send a request to the service. Any exception means that it is not ready."""

    def usage(self, instance: Instance) -> list[str]:
        """Return the options that connect to the service, one line for each listener."""


def free_ports(number: int) -> list[int]:
    """Return different ports at which nothing listens now."""
    found: list[int] = []
    for port in SystemRandom().sample(PORTS, len(PORTS)):
        if len(found) == number:
            break
        if is_free(port):
            found.append(port)
    return found


def is_free(port: int) -> bool:
    """Whether nothing listens at a port now."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError:
            return False
    return True


def connect(port: int) -> socket.socket:
    """Connect to a port of this machine, with a time limit of two seconds for each operation."""
    return socket.create_connection((HOST, port), timeout=2)


def get_json(url: str) -> Any:
    """Return the response of a service, without a proxy, within two seconds."""
    with build_opener(ProxyHandler({})).open(url, timeout=2) as answer:
        return json.load(answer)


def write_secret(path: Path, data: bytes) -> Path:
    """Write a file that only its owner can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    return path
