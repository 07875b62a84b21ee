"""Child: the process of a model. It never outlives the router.

ReservedAddress: a Unix socket or a port on which a process that the router starts listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence

from server.client.answer import Address, sickness
from server.router.config.config import PORT, SOCKET, RoutedModelConfig


class ReservedAddress:
    """Until ``close``, the system gives the address to no other process.

    The Unix socket is in a folder of its own. The port is bound here, and nobody listens on it yet.
    A server that sets SO_REUSEADDR or SO_REUSEPORT, as servers do, can listen on it all the same.
    """

    def __init__(self, command: Sequence[str]) -> None:
        """``command`` contains PORT or SOCKET. Raises OSError."""
        self._held = contextlib.ExitStack()
        if any(SOCKET in argument for argument in command):
            folder = tempfile.TemporaryDirectory(  # its mode is 0700
                prefix="roseinfer-route-", ignore_cleanup_errors=True
            )
            path = f"{self._held.enter_context(folder)}/model.sock"
            self.address = Address(socket_path=path)
        else:
            bound = self._held.enter_context(_bound_socket())
            self.address = Address("127.0.0.1", bound.getsockname()[1])

    def filled(self, argument: str) -> str:
        """The argument with the address in it."""
        filled = argument.replace(PORT, str(self.address.port))
        return filled.replace(SOCKET, self.address.socket_path)

    def close(self) -> None:
        """The process has ended. Idempotent."""
        self._held.close()


def _bound_socket() -> socket.socket:
    with contextlib.ExitStack() as stack:
        bound = stack.enter_context(socket.socket())
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            bound.setsockopt(socket.SOL_SOCKET, option, 1)
        # The port has to be free on all addresses: a server may listen on all of them.
        bound.bind(("", 0))
        stack.pop_all()
    return bound


FIRST_WAIT, LONGEST_WAIT = 0.005, 0.25
"""Seconds between two questions whether a process is ready; each wait is twice the one before."""

_STDERR = 2
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
"""Looked up here: between fork and exec, nothing should be."""


class LoadFailed(Exception):
    """The process did not get ready. The text is for people."""


class Child:
    """A process that serves one model on an address of its own. Event loop only."""

    def __init__(
        self, process: asyncio.subprocess.Process, reserved: ReservedAddress, health_path: str
    ) -> None:
        self.address = reserved.address
        self.pid = process.pid
        self._process = process
        self._reserved = reserved
        self._health_path = health_path
        self._exit = asyncio.get_running_loop().create_task(self._wait())

    @classmethod
    async def start(cls, name: str, config: RoutedModelConfig, environ: Mapping[str, str]) -> Child:
        """Start the process. Raises LoadFailed or OSError.

        Its standard output goes where the router's errors go.
        """
        command = command_of(name, config)
        reserved = ReservedAddress(command)
        argv = [reserved.filled(argument) for argument in command]
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=_STDERR,
                env={**environ, **config.env},
                start_new_session=True,
                preexec_fn=_die_with_parent if _prctl else None,
            )
        except OSError as error:
            reserved.close()
            raise LoadFailed(f"cannot start {argv[0]}: {error.strerror}") from None
        except BaseException:
            reserved.close()
            raise
        return cls(process, reserved, config.health_path)

    @property
    def has_exited(self) -> bool:
        return self._exit.done()

    async def exited(self) -> int:
        """Wait for the end of the process; returns its exit code."""
        return await asyncio.shield(self._exit)

    async def wait_ready(self, timeout: float) -> None:  # noqa: ASYNC109 - raises an error of ours
        """Wait until the process takes requests. Raises LoadFailed."""
        wait, reason = FIRST_WAIT, "it does not listen"
        try:
            async with asyncio.timeout(timeout):
                while True:
                    reason = await sickness(self.address, self._health_path, timeout)
                    if not reason:
                        return
                    await asyncio.wait({self._exit}, timeout=wait)
                    if self._exit.done():
                        raise LoadFailed(f"the process ended with code {self._exit.result()}")
                    wait = min(2 * wait, LONGEST_WAIT)
        except TimeoutError:
            raise LoadFailed(f"the process is not ready after {timeout:g} s: {reason}") from None

    async def stop(self, timeout: float) -> None:  # noqa: ASYNC109 - escalates, does not raise
        """SIGTERM; after ``timeout`` seconds SIGKILL, to all processes of its group."""
        self._signal(signal.SIGTERM)
        await asyncio.wait({self._exit}, timeout=timeout)
        self.kill()
        await asyncio.shield(self._exit)
        self._reserved.close()

    def kill(self) -> None:
        """End it at once, with what it has started."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        # Its group is its own session's, so its number is not used again while one of it lives.
        if not self._exit.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    async def _wait(self) -> int:
        code = await self._process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # what it has left behind
        return code


def command_of(name: str, config: RoutedModelConfig) -> Sequence[str]:
    """The command of a model, with PORT or SOCKET in it."""
    if config.command is not None:
        return config.command
    assert config.serve is not None
    names = [config.model] if config.model else [name, *config.aliases]
    known = [part for given in names for part in ("--served-model-name", given)]
    # Only the router's user can reach the socket, so everyone there may say who the client is.
    inner = ["--uds", SOCKET, "--forwarded-allow-ips", "*"]
    return [sys.executable, "-m", "server", "serve", *config.serve, *known, *inner]


def _die_with_parent() -> None:
    """Runs in the child before its program: the kernel kills it when the router ends."""
    assert _prctl is not None
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
