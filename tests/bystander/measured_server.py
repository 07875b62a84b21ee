"""The server, and a socket at which it says what it holds: ``... PATH [flags of serve]``.

A connection to the Unix socket at PATH gets one JSON object of numbers and is closed.
"""

from __future__ import annotations

import ctypes
import json
import signal
import socket
import sys
import threading
from typing import Any

from core.assembly.weights_ahead import touch_ahead
from server.cli.program import exit_process, set_up_server
from server.settings.settings import parse_settings


class _Mallinfo2(ctypes.Structure):
    """What glibc's mallinfo2 returns: of all arenas together."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def holdings(app: Any) -> dict[str, int]:
    """Numbers and bytes of what a server keeps. They may be a moment old: nothing is locked."""
    serving = app.state.serving
    found = {
        "python blocks": sys.getallocatedblocks(),
        "stored responses": app.state.response_store._responses._num_bytes,
        "request records": serving.records._records._num_bytes,
        "held by requests": serving.admission.memory.held,
    }
    if serving.loaded_model is not None:
        cache = serving.model.grammar_compiler._cache
        found |= {"grammars": len(cache), "weight of grammars": cache.num_bytes}
    if mallinfo := getattr(ctypes.CDLL(None), "mallinfo2", None):
        mallinfo.restype = _Mallinfo2
        info = mallinfo()
        found |= {
            "malloc, in use": info.uordblks + info.hblkhd,
            "malloc, free": info.fordblks,
        }
    return found


def answer(listener: socket.socket, apps: list[Any]) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(json.dumps(holdings(apps[0])).encode())


def main() -> None:
    path, *flags = sys.argv[1:]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    settings = parse_settings(["serve", *flags])
    set_up_server(settings)
    touch_ahead(settings.model)
    from server.cli import serve as process  # noqa: PLC0415 - imports torch, after set_up_server

    apps: list[Any] = []
    create_app = process.create_app

    def noted(*args: Any, **options: Any) -> Any:
        apps.append(create_app(*args, **options))
        return apps[-1]

    process.create_app = noted
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    threading.Thread(target=answer, args=(listener, apps), daemon=True).start()
    exit_process(process.run(settings))


if __name__ == "__main__":
    main()
