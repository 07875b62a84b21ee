"""Keys of servers, and loads that fail before there is a process."""

import asyncio
import errno

import pytest

from server.errors import APIError
from server.route import child
from server.route.config import make_config
from server.route.fleet import Fleet
from server.route.policy import State

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("tempfile.mkdtemp", OSError(errno.ENOSPC, "No space left on device")),
        ("_free_port", OSError(errno.EMFILE, "Too many open files")),
        ("asyncio.create_subprocess_exec", ValueError("embedded null byte")),
    ],
)
async def test_what_hinders_a_load_is_told_to_who_waits(name, error, monkeypatch):
    def fail(*_args, **_options):
        raise error

    monkeypatch.setattr(f"{child.__name__}.{name}", fail)
    fleet = Fleet(make_config({"models": {"m": {"command": ["x", "{port}"]}}}), {})
    model = fleet.models["m"]
    with pytest.raises(APIError, match=str(error.args[-1])) as raised:
        await asyncio.wait_for(fleet.join(model), 5.0)
    assert raised.value.status == 503
    assert model.state is State.UNLOADED
    await fleet.close()


async def test_the_line_end_of_a_secret_is_no_part_of_a_key():
    config = make_config({"models": {"m": {"url": "http://h", "api_key_env": "KEY"}}})
    assert Fleet(config, {"KEY": "secret\n"}).models["m"].api_key == "secret"
    assert Fleet(config, {"KEY": "\n"}).models["m"].api_key is None
    assert Fleet(config, {}).models["m"].api_key is None
