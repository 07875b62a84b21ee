"""From a client's request to an Order."""

import pytest

from server.admission.budget import HeldBody
from server.http.apis import ID_KEY
from server.router.config.config import make_config
from server.router.fleet import Fleet
from server.router.order import LARGE_BODY, SCOPE_KEY, order_of
from server.router.routing import Routing
from server.router.traffic import Traffic
from server.settings.settings import Settings
from server.tenants import tenant

pytestmark = pytest.mark.anyio

CONFIG = make_config({"models": {"a": {"url": "http://h", "model": "its-name-there"}}})


class Given:
    """A request whose body is there already."""

    def __init__(self, body, routing):
        self.headers = {"content-type": "application/json"}
        self.scope = {
            "method": "POST",
            "path": "/v1/chat/completions",
            "raw_path": b"/v1/chat/completions",
            "query_string": b"",
            "headers": [],
            "state": {
                SCOPE_KEY: HeldBody(routing.traffic.body_bytes, "t", len(body)),
                tenant.SCOPE_KEY: tenant.Tenant("t"),
                ID_KEY: "id",
            },
        }
        self._body = body

    async def stream(self):
        yield self._body


@pytest.mark.parametrize(("size", "num_turns"), [(10, 0), (LARGE_BODY, 1)])
async def test_others_have_a_turn_between_two_passes_over_a_large_body(size, num_turns):
    routing = Routing(Settings(), CONFIG, Fleet(CONFIG, {}), Traffic(Settings()))
    text = b"x" * size
    coroutine = order_of(Given(b'{"x":"%b","model":"a"}' % text, routing), routing)
    for _ in range(num_turns):
        assert coroutine.send(None) is None
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    assert ended.value.value.body.data == b'{"x":"%b","model":"its-name-there"}' % text
