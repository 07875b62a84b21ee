"""Which processes are ended because they do not answer."""

from unittest.mock import Mock

import pytest

from server.client.answer import Address
from server.router import upstream
from server.router.child import Child
from server.router.config.config import make_config
from server.router.upstream import MAX_SICK, RoutedModel, Upstream, Watch

pytestmark = pytest.mark.anyio


@pytest.fixture
def sick(monkeypatch):
    """The paths that answer nothing."""
    paths = {"/readyz", "/livez"}

    async def sickness(_address, path, _timeout):
        return "silent" if path in paths else ""

    monkeypatch.setattr(upstream, "sickness", sickness)
    return paths


class Watched:
    def __init__(self):
        config = make_config({"models": {"m": {"serve": []}}})
        self.upstream = Upstream(Address("h", 1))
        child = Mock(spec=Child)
        self.model = RoutedModel(
            "m", config=config.models["m"], upstreams=[self.upstream], child=child
        )
        self.restart = Mock()
        self.watch = Watch(config, self.restart)

    async def ask(self, times):
        for _ in range(times):
            await self.watch._probe(self.model, self.upstream)
        return self.restart.called


async def test_a_process_that_is_not_alive_is_ended(sick):
    watched = Watched()
    assert not await watched.ask(MAX_SICK - 1)
    assert await watched.ask(1)
    watched.restart.assert_called_with(watched.model)


async def test_questions_before_it_sent_something_do_not_count(sick):
    watched = Watched()
    for now in range(MAX_SICK):
        assert not await watched.ask(MAX_SICK - 1)
        watched.upstream.heard(now)


async def test_a_process_that_is_alive_in_between_is_kept(sick):
    watched = Watched()
    for _ in range(MAX_SICK):
        assert not await watched.ask(MAX_SICK - 1)
        sick.remove("/livez")
        assert not await watched.ask(1)
        assert watched.upstream.is_stalled
        sick.add("/livez")
