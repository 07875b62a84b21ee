"""A server of a model that starts in milliseconds and does what a request's body says.

    python -I scripted_upstream.py NAME (--port N | --uds PATH) [--load-ms N] [--fail]
        [--fail-if PATH] [--stubborn]

Fields of a body: ``n`` events, ``delay_ms`` before each, ``die_after`` so many events (-1: before
the answer), ``hang`` (never answers), ``pause_after`` so many events for ever, ``half`` (dies in
the middle of an event), ``status`` with ``body``, ``size`` of the text in an event, ``lines``
(newline-delimited JSON), ``sick`` (its health is bad from now on), ``retire_ms`` (its socket is
gone from now on, and so much later the process). Without ``stream``, the answer is what was
received. ``GET /log`` lists the requests so far. SIGTERM and SIGINT end it at once, in the
middle of whatever it does.
"""

import hashlib
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

LOG = []
OPEN = [0]
SICK = threading.Event()


def main() -> None:
    name, argv = sys.argv[1], sys.argv[2:]
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell ignores it in the background
    if "--fail" in argv or ("--fail-if" in argv and Path(after(argv, "--fail-if")).exists()):
        sys.exit(3)
    if "--stubborn" in argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "--uds" in argv:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(after(argv, "--uds"))
        listener.listen(128)
    else:
        port = int(after(argv, "--port")) if "--port" in argv else 0
        listener = socket.create_server(("127.0.0.1", port), backlog=128)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        print(f"Listening on {url},", flush=True)  # noqa: T201
    load_ms = int(after(argv, "--load-ms")) if "--load-ms" in argv else 0
    ready_at = time.monotonic() + load_ms / 1000
    while True:
        connection, _ = listener.accept()
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=(name, connection, ready_at), daemon=True).start()


def after(argv: list[str], flag: str) -> str:
    return argv[argv.index(flag) + 1]


def serve(name: str, connection: socket.socket, ready_at: float) -> None:
    with connection:
        head, headers, body = read(connection)
        method, target, _ = head.split(" ", 2)
        if method == "GET" and target in {"/health", "/readyz", "/livez"}:
            is_ready = time.monotonic() >= ready_at and not SICK.is_set()
            whole(connection, 200 if is_ready else 503, {"status": "ok" if is_ready else "loading"})
        elif target == "/log":
            whole(connection, 200, {"requests": LOG, "open": OPEN[0], "pid": os.getpid()})
        else:
            OPEN[0] += 1
            LOG.append(target)
            try:
                answer(name, connection, method, target, headers, body)
            except OSError:
                LOG.append("left")
            finally:
                OPEN[0] -= 1


def read(connection: socket.socket):
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            sys.exit()
        data += piece
    head, body = data.split(b"\r\n\r\n", 1)
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = [line.split(": ", 1) for line in lines]
    size = int(dict(headers).get("content-length", 0))
    while len(body) < size:
        body += connection.recv(65536)
    return first, headers, body


def answer(name, connection, method, target, headers, body) -> None:
    asked = json.loads(body) if body else {}
    if "sick" in asked:
        SICK.set()
    if "retire_ms" in asked:
        Path(after(sys.argv, "--uds")).unlink()
        threading.Timer(asked["retire_ms"] / 1000, os._exit, (0,)).start()
    if asked.get("hang"):
        connection.recv(1)  # until the client leaves
        raise OSError
    if asked.get("die_after") == -1:
        os._exit(9)
    if "status" in asked:
        whole(connection, asked["status"], asked.get("body", {"error": {"message": "refused"}}))
    elif asked.get("stream"):
        stream(name, connection, target, asked)
    else:
        digest = hashlib.sha256(body).hexdigest()
        received = {"method": method, "target": target, "headers": headers, "sha256": digest}
        extra = {"id": "resp_" + digest[:16]} if "responses" in target else {}
        whole(connection, 200, extra | {"name": name, "pid": os.getpid(), "received": received})


def whole(connection: socket.socket, status: int, content) -> None:
    body = json.dumps(content).encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nretry-after: 7\r\n"
    connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)


def stream(name: str, connection: socket.socket, target: str, asked) -> None:
    is_lines = bool(asked.get("lines"))
    kind = "application/x-ndjson" if is_lines else "text/event-stream; charset=utf-8"
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n"
    connection.sendall(f"{head}x-upstream: {name}\r\n\r\n".encode())
    text = "x" * asked.get("size", 1)
    for number in range(asked.get("n", 3)):
        if asked.get("die_after") == number:
            os._exit(9)
        if asked.get("pause_after") == number:
            connection.recv(1)
            raise OSError
        time.sleep(asked.get("delay_ms", 0) / 1000)
        event = {"id": f"resp_{os.getpid()}", "model": name, "sequence_number": number}
        data = json.dumps(event | {"text": text}).encode()
        data = data + b"\n" if is_lines else b"data: " + data + b"\n\n"
        if asked.get("half") == number:
            connection.sendall(b"%x\r\n%b\r\n" % (len(data) // 2, data[: len(data) // 2]))
            time.sleep(0.05)
            os._exit(9)
        connection.sendall(b"%x\r\n%b\r\n" % (len(data), data))
    end = b"" if is_lines else b"data: [DONE]\n\n"
    connection.sendall((b"%x\r\n%b\r\n" % (len(end), end) if end else b"") + b"0\r\n\r\n")


if __name__ == "__main__":
    main()
