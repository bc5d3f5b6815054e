"""A network client for kafka-python that gives up at once where a retry cannot help.

kafka-python 3.0.12 retries a wrong password and an untrusted certificate until its time limit, and then reports only
that it could not bootstrap. It waits without limit for a TLS handshake that the other side does not answer, and its
metadata requests create topics whatever `allow_auto_create_topics` is. Its clients accept another network client as the
setting `kafka_client`; `NetworkClient` is one.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any

from kafka import errors
from kafka.net.compat import KafkaNetClient
from kafka.net.connection import KafkaConnection
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

_PERMANENT = (
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
    errors.AuthorizationError,
    errors.KafkaProtocolError,
    errors.UnsupportedVersionError,
)
_TRANSIENT_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_BROKERS_TO_TRY = 3
"""One broker that does not answer uses up this fraction of the time limit."""
_RECEIVE_BYTES = 1 << 20
_PAUSE_SECONDS = 0.05
_METADATA_PAUSE_MS = 20
"""Between two requests for metadata, where kafka-python waits for 100 ms. A new client requests some that name no
topic, so that it waited before those of its first topic."""


def causes(problem: BaseException) -> Iterator[BaseException]:
    """Yield a problem and its causes: kafka-python chains exceptions, and passes some as arguments of others."""
    seen: set[int] = set()
    left: list[BaseException | None] = [problem]
    while left:
        cause = left.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        left += [cause.__context__, cause.__cause__]
        left += [argument for argument in cause.args if isinstance(argument, BaseException)]


def is_permanent(problem: BaseException) -> bool:
    """Whether a retry would fail in the same way: the broker answered, and one side refuses the other."""
    return any(
        isinstance(cause, _PERMANENT) or (isinstance(cause, ssl.SSLError) and not isinstance(cause, _TRANSIENT_TLS))
        for cause in causes(problem)
    )


class _Socket(KafkaNetSocket):  # type: ignore[misc]
    """Closes the socket of a failed connection attempt."""

    SCHEMES = ()

    async def sock_connect(
        self, net: NetworkSelector, sock: socket.socket, sockaddr: object, timeout_at: float | None = None
    ) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


async def _connect_any(net: NetworkSelector, node: Any, options: object, timeout_at: float | None) -> Any:
    """Return a socket connected to the first address of the host that accepts."""
    sockets = _Socket()
    problem: errors.KafkaError | None = None
    for address in sockets.dns_lookup(node.host, node.port, raise_error=True):
        try:
            return await sockets.connect(net, address, options, timeout_at=timeout_at)
        except errors.KafkaError as failed:
            problem = failed
    raise problem or errors.KafkaConnectionError("no address")


class _LargeReads:
    """A transport that receives up to a megabyte at once, and returns the bytes before the end of the stream.

    kafka-python reads 4 KiB per call. After each call another thread may get the interpreter, so a consumer next to a
    busy thread waited longer than it read. And when a broker refuses a login, it sends the reason and closes the
    connection: kafka-python dropped bytes that it read together with the end, so the reason was sometimes lost.
    """

    _sock: socket.socket

    def _sock_recv(self) -> tuple[bytes, errors.KafkaError | None]:
        pieces: list[bytes] = []
        problem: errors.KafkaError | None = None
        while sum(map(len, pieces)) < _RECEIVE_BYTES:
            try:
                piece = self._sock.recv(_RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except (OSError, AttributeError) as failed:  # AttributeError: closed by another thread
                problem = errors.KafkaConnectionError(failed)
                break
            if not piece:
                problem = errors.KafkaConnectionError("socket disconnected")
                break
            pieces.append(piece)
        return b"".join(pieces), None if pieces else problem  # the next call returns the problem


class _PlainTransport(_LargeReads, KafkaTCPTransport):  # type: ignore[misc]
    pass


class _TlsTransport(_LargeReads, KafkaSSLTransport):  # type: ignore[misc]
    pass


class _Manager(KafkaConnectionManager):  # type: ignore[misc]
    """Keeps the last failure of each broker; the next request to a broker raises its permanent failure."""

    def __init__(self, net: NetworkSelector, **configs: object) -> None:
        super().__init__(net, **configs)
        self.cluster.config["allow_auto_create_topics"] = False
        self.cluster.config["retry_backoff_ms"] = _METADATA_PAUSE_MS
        self.failures: dict[str, BaseException] = {}

    def get_connection(self, node_id: int | str, timeout_ms: float | None = None, **more: object) -> Any:
        """Limit the time for one broker, so that a broker that does not answer leaves time for the others."""
        if timeout_ms is not None:
            timeout_ms = min(timeout_ms, self.config["socket_connection_setup_timeout_ms"] / _BROKERS_TO_TRY)
        return super().get_connection(node_id, timeout_ms=timeout_ms, **more)

    def close(self, node_id: int | str | None = None, timeout_ms: float | None = None) -> None:
        """Close sockets at once: kafka-python waits for pending writes, which nothing completes after the close."""
        transports = [conn.transport for conn in self._conns.values()] if node_id is None else []
        super().close(node_id, timeout_ms)
        for transport in transports:
            if transport is not None:
                transport._close()

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = True) -> None:
        """Bootstrap, then connect to a broker by its advertised address: all later requests use that address."""
        super().bootstrap(timeout_ms, refresh)
        self._net.run(self._connect_to_one, None if timeout_ms is None else time.monotonic() + timeout_ms / 1000)

    async def _connect_to_one(self, deadline: float | None) -> None:
        while deadline is None or time.monotonic() < deadline:
            node_id = self.least_loaded_node()
            if node_id is None:  # all brokers failed and are backing off
                await self._net.sleep(_PAUSE_SECONDS)
                continue
            left_ms = None if deadline is None else (deadline - time.monotonic()) * 1000
            try:
                await self.get_connection(node_id, timeout_ms=left_ms)
                return
            except errors.KafkaError as problem:
                if is_permanent(problem):
                    raise
        raise errors.KafkaTimeoutError("no broker can be reached at its advertised address")

    async def _connect(self, node: Any, conn: KafkaConnection, **more: object) -> None:
        await super()._connect(node, conn, **more)
        address, problem = f"{node.host}:{node.port}", conn.init_future.exception
        if problem is None:
            self.failures.pop(address, None)
            return
        self.failures[address] = problem
        if is_permanent(problem):
            self._auth_failures[node.node_id] = problem

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> _LargeReads:
        """Limit the time of the TLS handshake too, and close the socket of a failed attempt."""
        sock = await _connect_any(self._net, node, self.config["socket_options"], timeout_at)
        if not self.ssl_enabled:
            return _PlainTransport(self._net, sock, host=node.host)
        transport = _TlsTransport(self._net, sock, host=node.host, ssl_context=self.config["ssl_context"])
        left_ms = None if timeout_at is None else max(0.0, timeout_at - time.monotonic()) * 1000
        try:
            await self.wait_for(self.call_soon(transport.handshake), left_ms)
        except Exception as problem:
            transport.abort(problem)
            raise errors.KafkaConnectionError(f"TLS handshake failed: {problem}") from problem
        return transport


class NetworkClient(KafkaNetClient):  # type: ignore[misc]
    """The value of the setting `kafka_client`. `failures` holds the last failure of each unreachable broker."""

    def __init__(self, **configs: object) -> None:
        net = NetworkSelector(**configs)
        super().__init__(net=net, manager=_Manager(net, **configs))

    @property
    def failures(self) -> dict[str, BaseException]:
        """By HOST:PORT."""
        failures: dict[str, BaseException] = self._manager.failures
        return failures
