"""Notifier: tells a service manager that the server is ready, stops, and makes progress.

The protocol is that of sd_notify(3): datagrams of lines to the Unix socket that the environment
names. Without ``NOTIFY_SOCKET`` nothing is sent and no timer runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping

logger = logging.getLogger("roseinfer.server")

BEATS_PER_TIMEOUT = 3
"""Watchdog messages that are sent within the time after which the manager misses them."""


class Notifier:
    """Sends the server's state to a service manager. Event loop only.

    A message that cannot be sent is dropped; the first one is logged. No call blocks or raises.
    """

    def __init__(self, address: str = "", watchdog_seconds: float = 0.0) -> None:
        """``address`` is a path, ``@`` and an abstract name, or empty.

        ``watchdog_seconds`` is the time without a message after which the manager ends the
        process; 0: it waits for none.
        """
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._interval = watchdog_seconds / BEATS_PER_TIMEOUT
        self._has_failed = False

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Notifier:
        """What systemd sets for a service: ``NOTIFY_SOCKET``, ``WATCHDOG_USEC``, ``WATCHDOG_PID``.

        The watchdog is another process's if ``WATCHDOG_PID`` says so.
        """
        is_ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = environ.get("WATCHDOG_USEC", "") if is_ours else ""
        seconds = int(microseconds) / 1e6 if microseconds.isdecimal() else 0.0
        return cls(environ.get("NOTIFY_SOCKET", ""), seconds)

    def ready(self) -> None:
        """The model is loaded and requests are accepted."""
        self._send("READY=1\nSTATUS=Serving.")

    def stopping(self) -> None:
        """New work is refused; the process exits when open responses have ended."""
        self._send("STOPPING=1\nSTATUS=Draining.")

    def watch(self, is_alive: Callable[[], bool]) -> None:
        """Send the watchdog's message as long as ``is_alive``. It is asked on the event loop.

        A loop that is blocked sends none either. The messages end with the loop.
        """
        if self._address and self._interval:
            self._beat(asyncio.get_running_loop(), is_alive)

    def _beat(self, loop: asyncio.AbstractEventLoop, is_alive: Callable[[], bool]) -> None:
        if is_alive():
            self._send("WATCHDOG=1")
        loop.call_later(self._interval, self._beat, loop, is_alive)

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(message.encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                logger.warning("the service manager does not take messages: %s", error)
            self._has_failed = True
