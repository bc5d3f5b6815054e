"""kafka-python's connections, made to give up at once where trying again cannot help.

By itself 3.0.12 tries a wrong password and an untrusted certificate again until its time is up, and then says only that
it could not bootstrap. It waits without end for a TLS handshake that nobody answers, and has topics made by asking for
them, whatever `allow_auto_create_topics` says. Its clients take another network client as a setting: this is it.
"""

from __future__ import annotations

import selectors
import ssl
import time
from collections.abc import Iterator
from typing import Any

from kafka import errors
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

_FINAL = (
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
    errors.AuthorizationError,
    errors.KafkaProtocolError,
    errors.UnsupportedVersionError,
)
_PASSING = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_TRIES = 3
_RECEIVE_BYTES = 1 << 20
_PAUSE_SECONDS = 0.05


def causes(problem: BaseException) -> Iterator[BaseException]:
    """A problem and what it came from: kafka-python wraps some in others, and hands some on as words of another."""
    seen: set[int] = set()
    left: list[BaseException | None] = [problem]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        left += [one.__context__, one.__cause__]
        left += [word for word in one.args if isinstance(word, BaseException)]


def is_final(problem: BaseException) -> bool:
    """Whether the same would come of trying again: the broker was there, and one of us does not want the other."""
    return any(
        isinstance(cause, _FINAL) or (isinstance(cause, ssl.SSLError) and not isinstance(cause, _PASSING))
        for cause in causes(problem)
    )


class _Socket(KafkaNetSocket):  # type: ignore[misc]
    """Closes what did not come to a connection."""

    SCHEMES = ()

    async def sock_connect(self, net: Any, sock: Any, sockaddr: Any, timeout_at: float | None = None) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


async def _connected(net: Any, node: Any, options: Any, timeout_at: float | None) -> Any:
    """A socket to the first address of a host that takes it."""
    sockets = _Socket()
    problem: errors.KafkaError | None = None
    for address in sockets.dns_lookup(node.host, node.port, raise_error=True):
        try:
            return await sockets.connect(net, address, options, timeout_at=timeout_at)
        except errors.KafkaError as failed:
            problem = failed
    raise problem or errors.KafkaConnectionError("no address")


class _Receives:
    """Of a transport: takes what has come in large pieces, and hands on what came before the end.

    kafka-python asks for 4 KiB at a time. Each time another thread may take the interpreter and keep it for a while, so
    that a consumer beside a busy thread waited more than it read. And a broker that does not let somebody in says so
    and hangs up: what was read together with the end was thrown away, and chance decided whether it was known why.
    """

    _sock: Any

    def _sock_recv(self) -> tuple[bytes, errors.KafkaError | None]:
        pieces: list[bytes] = []
        problem: errors.KafkaError | None = None
        while sum(map(len, pieces)) < _RECEIVE_BYTES:
            try:
                piece = self._sock.recv(_RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except (OSError, AttributeError) as failed:  # AttributeError: it was closed meanwhile
                problem = errors.KafkaConnectionError(failed)
                break
            if not piece:
                problem = errors.KafkaConnectionError("socket disconnected")
                break
            pieces.append(piece)
        return b"".join(pieces), None if pieces else problem  # the end will be there again


class _Plain(_Receives, KafkaTCPTransport):  # type: ignore[misc]
    pass


class _Tls(_Receives, KafkaSSLTransport):  # type: ignore[misc]
    pass


class _Manager(KafkaConnectionManager):  # type: ignore[misc]
    """Keeps the last failure of each broker, and has the final ones raised by whoever asks that broker next."""

    def __init__(self, net: Any, **configs: Any) -> None:
        super().__init__(net, **configs)
        self.cluster.config["allow_auto_create_topics"] = False
        self.failures: dict[str, BaseException] = {}

    def get_connection(self, node_id: Any, timeout_ms: float | None = None, **more: Any) -> Any:
        """As ever, but one broker that does not answer may not use up the time for all."""
        if timeout_ms is not None:
            timeout_ms = min(timeout_ms, self.config["socket_connection_setup_timeout_ms"] / _TRIES)
        return super().get_connection(node_id, timeout_ms=timeout_ms, **more)

    def close(self, node_id: Any = None, timeout_ms: float | None = None) -> None:
        """As ever, but at the end no socket waits for what was to be written first: nobody would do that any more."""
        transports = [conn.transport for conn in self._conns.values()] if node_id is None else []
        super().close(node_id, timeout_ms)
        for transport in transports:
            if transport is not None:
                transport._close()

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = True) -> None:
        """As ever, and then reach a broker by the address that the cluster tells, of which the rest depends."""
        super().bootstrap(timeout_ms, refresh)
        self._net.run(self._reach_one, None if timeout_ms is None else time.monotonic() + timeout_ms / 1000)

    async def _reach_one(self, deadline: float | None) -> None:
        while deadline is None or time.monotonic() < deadline:
            node_id = self.least_loaded_node()
            if node_id is None:  # all have failed lately
                await self._net.sleep(_PAUSE_SECONDS)
                continue
            left_ms = None if deadline is None else (deadline - time.monotonic()) * 1000
            try:
                await self.get_connection(node_id, timeout_ms=left_ms)
                return
            except errors.KafkaError as problem:
                if is_final(problem):
                    raise
        raise errors.KafkaTimeoutError("no broker can be reached by the address that the cluster tells")

    async def _connect(self, node: Any, conn: Any, **more: Any) -> None:
        await super()._connect(node, conn, **more)
        address, problem = f"{node.host}:{node.port}", conn.init_future.exception
        if problem is None:
            self.failures.pop(address, None)
            return
        self.failures[address] = problem
        if is_final(problem):
            self._auth_failures[node.node_id] = problem

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        """As ever, but the TLS handshake has a time limit too, and no attempt leaves a socket behind."""
        sock = await _connected(self._net, node, self.config["socket_options"], timeout_at)
        if not self.ssl_enabled:
            return _Plain(self._net, sock, host=node.host)
        transport = _Tls(self._net, sock, host=node.host, ssl_context=self.config["ssl_context"])
        left_ms = None if timeout_at is None else max(0.0, timeout_at - time.monotonic()) * 1000
        try:
            await self.wait_for(self.call_soon(transport.handshake), left_ms)
        except Exception as problem:
            transport.abort(problem)
            raise errors.KafkaConnectionError(f"TLS handshake failed: {problem}") from problem
        return transport


class _Selector(selectors.DefaultSelector):
    """Says that nobody waits for a socket without describing it: that took longer than the wait, at every look."""

    _fd_to_key: dict[int, selectors.SelectorKey]

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        """As ever, but cheaply."""
        key = self._fd_to_key.get(fileobj.fileno())
        if key is None:
            raise KeyError(fileobj)
        return key


class ReachingClient(KafkaNetClient):  # type: ignore[misc]
    """The setting `kafka_client`. `failures` are the last ones of each broker that could not be reached."""

    def __init__(self, **configs: Any) -> None:
        net = NetworkSelector(**{**configs, "selector": _Selector})
        super().__init__(net=net, manager=_Manager(net, **configs))

    @property
    def failures(self) -> dict[str, BaseException]:
        """By HOST:PORT."""
        failures: dict[str, BaseException] = self._manager.failures
        return failures
