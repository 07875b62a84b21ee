import asyncio
import contextlib
import gc
import socket

import pytest

from bench.random_model import make_random_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The directory of a tiny random model."""
    return make_random_model("tiny", tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
async def start_server():
    """Start loopback servers that send the given bytes, piece by piece, and close or wait.

    Each request is appended to ``server.requests``.
    """
    async with contextlib.AsyncExitStack() as stack:

        async def start(*pieces, is_closing=True):
            requests = []

            async def answer(reader, writer):
                head = await reader.readuntil(b"\r\n\r\n")
                length = 0
                for line in head.split(b"\r\n"):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                requests.append((head, await reader.readexactly(length)))
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                if not is_closing:
                    await reader.read()  # until the client closes
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            await stack.enter_async_context(server)
            server.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
            server.requests = requests
            return server

        yield start
    gc.collect()  # an unclosed transport would warn here


@pytest.fixture
def unused_port():
    """A port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
