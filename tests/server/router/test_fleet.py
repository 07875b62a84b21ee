"""Loads that fail, processes that end, and what is remembered of both."""

import asyncio
import contextlib
import errno
import os
import signal

import pytest

from server.http.errors import APIError
from server.router import child, fleet
from server.router.config.config import make_config
from server.router.config.policy import ModelState
from server.router.fleet import Fleet
from tests.support.routers import scripted

pytestmark = pytest.mark.anyio

DEADLINE = 30.0


class Driven:
    """A fleet of scripted servers, used by one request at a time."""

    def __init__(self, config):
        self.fleet = Fleet(make_config(config), {})
        self.models = self.fleet.models

    async def use(self, name):
        """A request gets its place and gives it back."""
        model = self.models[name]
        with self.fleet.joined(model, "tenant") as future:
            await asyncio.wait_for(asyncio.shield(future), DEADLINE)

    async def crash(self, name):
        """Its process ends by itself, and the router has seen it."""
        os.kill(self.models[name].child.pid, signal.SIGKILL)
        await self.until(lambda: self.models[name].state is ModelState.UNLOADED)

    async def until(self, is_true):
        async with asyncio.timeout(DEADLINE):
            while not is_true():
                await asyncio.wait(self.fleet._tasks, return_when=asyncio.FIRST_COMPLETED)

    def states(self):
        return [model.state.value for model in self.models.values()]


@pytest.fixture
async def drive():
    async with contextlib.AsyncExitStack() as stack:

        def drive(models, **config):
            driven = Driven({"models": {n: {"command": c} for n, c in models.items()}} | config)
            stack.push_async_callback(driven.fleet.close)
            return driven

        yield drive


@pytest.mark.parametrize(
    ("place", "command", "error"),
    [
        ("tempfile.mkdtemp", "{socket}", OSError(errno.ENOSPC, "No space left on device")),
        ("_bound_socket", "{port}", OSError(errno.EMFILE, "Too many open files")),
        ("asyncio.create_subprocess_exec", "{port}", ValueError("embedded null byte")),
    ],
)
async def test_what_hinders_a_load_is_told_to_who_waits(drive, place, command, error, monkeypatch):
    def fail(*_args, **_options):
        raise error

    monkeypatch.setattr(f"{child.__name__}.{place}", fail)
    driven = drive({"m": ["x", command]})
    with pytest.raises(APIError, match=str(error.args[-1])) as raised:
        await driven.use("m")
    assert raised.value.status == 503
    assert driven.states() == ["unloaded"]


async def test_the_line_end_of_a_secret_is_no_part_of_a_key():
    config = make_config({"models": {"m": {"url": "http://h", "api_key_env": "KEY"}}})
    assert Fleet(config, {"KEY": "secret\n"}).models["m"].api_key == "secret"


async def test_a_model_comes_back_only_for_the_load_that_displaced_it(drive, tmp_path):
    broken = tmp_path / "broken"
    commands = {"a": scripted("a"), "b": scripted("b", "--fail-if", str(broken))}
    driven = drive(commands, max_loaded=1, min_loaded=0.0)
    model = driven.models["b"]

    async def fail():
        with pytest.raises(APIError, match="ended with code 3"):
            await driven.use("b")
        model.retry_at = 0.0  # no pause

    await driven.use("a")
    await driven.use("b")  # displaces a, and succeeds
    await driven.crash("b")
    broken.touch()
    await fail()  # displaces nobody
    assert driven.states() == ["unloaded", "unloaded"]
    await driven.use("a")
    await fail()  # displaces a
    await driven.until(lambda: driven.models["a"].is_ready)
    await driven.crash("a")
    await fail()  # displaces nobody
    assert driven.states() == ["unloaded", "unloaded"]


async def test_two_early_ends_in_a_row_begin_the_pauses(drive):
    driven = drive({"a": scripted("a")})
    for _ in range(2):
        await driven.use("a")
        await driven.crash("a")
    with pytest.raises(APIError, match="its process ends by itself"):
        await driven.use("a")


async def test_late_ends_begin_no_pauses(drive, monkeypatch):
    monkeypatch.setattr(fleet, "SOON", 0.0)
    driven = drive({"a": scripted("a")})
    for number in range(3):
        await driven.use("a")
        await driven.crash("a")
        assert driven.models["a"].counts["crashes"] == number + 1


async def test_an_end_before_the_model_was_unloaded_is_forgotten(drive):
    driven = drive({"a": scripted("a"), "b": scripted("b")}, max_loaded=1, min_loaded=0.0)
    await driven.use("a")
    await driven.crash("a")
    await driven.use("a")
    await driven.use("b")  # unloads a
    await driven.use("a")
    await driven.crash("a")
    await driven.use("a")
