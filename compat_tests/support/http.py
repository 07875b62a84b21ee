"""A small HTTP/1.1 client on a bare socket: what is sent and what arrives is exact to the byte."""

import contextlib
import json
import socket
import ssl
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

Body = bytes | dict[str, Any] | list[Any] | None


class ConnectionEnded(Exception):
    """The peer closed the connection where more bytes were due."""


def encode(body: Any) -> bytes:
    """Compact UTF-8 JSON, as the SDK sends it; bytes are left alone."""
    if isinstance(body, bytes):
        return body
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def reject_constant(name: str) -> float:
    raise AssertionError(f"{name} is not JSON")


def strict_json(data: bytes | str) -> Any:
    """Decode strictly: UTF-8 without a byte-order mark, no NaN, no infinities."""
    if isinstance(data, bytes):
        data = data.decode("utf-8", "strict")
    value = json.loads(data, parse_constant=reject_constant)
    data_again = json.dumps(value, ensure_ascii=False)
    data_again.encode("utf-8", "strict")  # no lone surrogates
    return value


class Reply:
    """One response. The body is read on demand: whole, or piece by piece as it arrives."""

    def __init__(self, connection: "Connection", status: int, headers: list[tuple[str, str]]):
        self._connection = connection
        self.status = status
        self.headers = headers
        self._body: bytes | None = None

    def header(self, name: str) -> str | None:
        """The value of a header, which must not be repeated; None when absent."""
        values = [value for key, value in self.headers if key == name.lower()]
        assert len(values) <= 1, f"{name} is repeated: {values}"
        return values[0] if values else None

    def pieces(self) -> Iterator[bytes]:
        """The body as it arrives: one item for each HTTP chunk, or for each read."""
        if self._connection.last_method == "HEAD" or self.status in {204, 304}:
            return
        if (self.header("transfer-encoding") or "").lower() == "chunked":
            yield from self._connection.read_chunks()
        elif (length := self.header("content-length")) is not None:
            left = int(length)
            while left:
                piece = self._connection.read_some(left)
                left -= len(piece)
                yield piece
        else:
            yield from self._connection.read_to_end()

    @property
    def body(self) -> bytes:
        if self._body is None:
            self._body = b"".join(self.pieces())
        return self._body

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "strict")

    @property
    def json(self) -> Any:
        return strict_json(self.body)


class Connection:
    """One connection. A context manager; every wait has the same time limit."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout: float = 60.0,
        receive_buffer: int | None = None,
        source: str = "",
        tls: ssl.SSLContext | None = None,
        uds: str = "",
    ) -> None:
        """``source`` is the address to connect from, ``uds`` the path of a Unix socket."""
        self.host = host
        self.port = port
        family = socket.AF_UNIX if uds else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        try:
            if source:
                self.socket.bind((source, 0))
            self.socket.connect(uds or (host, port))
            if not uds:
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        except OSError:
            self.socket.close()
            raise
        self.last_method = ""
        self._buffer = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close at once; harmless when repeated."""
        self.socket.close()

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(
        self,
        method: str,
        path: str,
        body: Body = None,
        headers: dict[str, str | None] | None = None,
    ) -> None:
        """Write one request. A header of None removes a default one."""
        payload = b"" if body is None else encode(body)
        fields: dict[str, str | None] = {"host": f"{self.host}:{self.port}"}
        if body is not None:
            fields |= {"content-type": "application/json", "content-length": str(len(payload))}
        fields |= {name.lower(): value for name, value in (headers or {}).items()}
        lines = [f"{method} {path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in fields.items() if value is not None]
        self.last_method = method
        self.send_bytes("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + payload)

    def read_reply(self) -> Reply:
        """Read the head of the next response."""
        status_line = self._read_line()
        version, status, *_ = status_line.split(" ", 2)
        assert version == "HTTP/1.1", status_line
        headers: list[tuple[str, str]] = []
        while line := self._read_line():
            name, _, value = line.partition(":")
            headers.append((name.strip().lower(), value.strip()))
        return Reply(self, int(status), headers)

    def request(
        self,
        method: str,
        path: str,
        body: Body = None,
        headers: dict[str, str | None] | None = None,
    ) -> Reply:
        """Write a request and read the head of its response, which may come before it is read."""
        with contextlib.suppress(
            BrokenPipeError
        ):  # a server without descriptors answers and closes
            self.send(method, path, body, headers)
        return self.read_reply()

    def read_some(self, limit: int) -> bytes:
        """Between 1 and ``limit`` bytes, as soon as there are any."""
        if not self._buffer:
            self._fill()
        piece = bytes(self._buffer[:limit])
        del self._buffer[:limit]
        return piece

    def read_to_end(self) -> Iterator[bytes]:
        while True:
            if self._buffer:
                yield self.read_some(len(self._buffer))
            data = self.socket.recv(65536)
            if not data:
                return
            self._buffer += data

    def read_chunks(self) -> Iterator[bytes]:
        """Decode chunked transfer coding, strictly."""
        while True:
            size = int(self._read_line(), 16)
            data = self._read_exactly(size)
            assert self._read_exactly(2) == b"\r\n"
            if size == 0:
                return
            yield data

    def is_closed_by_peer(self, timeout: float = 20.0) -> bool:
        """Whether the peer ends the connection, without another byte, within ``timeout``."""
        self.socket.settimeout(timeout)
        try:
            return not self._buffer and self.socket.recv(1) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    def _read_exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._fill()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def _read_line(self) -> str:
        while (end := self._buffer.find(b"\r\n")) < 0:
            self._fill()
        line = bytes(self._buffer[:end]).decode("latin-1")
        del self._buffer[: end + 2]
        return line

    def _fill(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionEnded(f"the peer closed; unread: {bytes(self._buffer)!r}")
        self._buffer += data


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start
