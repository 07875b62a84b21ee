"""`roseinfer route` in front of llama.cpp's and vLLM's servers.

ROUTE_TEST_LLAMA and ROUTE_TEST_VLLM are their command lines without address, such as
``llama-server -m model.gguf`` and ``vllm serve DIR --max-model-len 2048``. The model has to be one
for chats. Without them the tests are skipped.
"""

import os
import re
import shlex
import time

import pytest

from compat_tests.support.http import Connection
from compat_tests.support.process import loopback_only
from compat_tests.support.waiting import eventually
from tests.support.routers import CHAT, Router, events_of

pytestmark = pytest.mark.real

VARIABLES = {"llama": "ROUTE_TEST_LLAMA", "vllm": "ROUTE_TEST_VLLM"}
ADDRESS = ["--host", "127.0.0.1", "--port", "{port}"]
PATIENCE = 600.0
USER = [{"role": "user", "content": "Count to twenty."}]
GREEDY = {"messages": USER, "temperature": 0, "max_tokens": 24}
LONG = {"messages": USER, "max_tokens": 1500, "ignore_eos": True, "stream": True}


def is_idle(kind, get):
    """Whether the server itself says that it computes nothing."""
    if kind == "llama":
        return not any(slot["is_processing"] for slot in get("/slots").json)
    running = re.findall(r"\nvllm:num_requests_running\{.*\} (\S+)\n", get("/metrics").text)
    return [float(number) for number in running] == [0.0]


class Fleet(Router):
    """A router with room for one of: the built-in model, and each server that is named."""

    def __init__(self, folder):
        commands = {kind: os.environ.get(name) for kind, name in VARIABLES.items()}
        self.kinds = [kind for kind, command in commands.items() if command]
        models = {
            kind: {"command": [*shlex.split(commands[kind]), *ADDRESS]} for kind in self.kinds
        }
        if "vllm" in models:  # it serves the name of its folder
            argv = models["vllm"]["command"]
            models["vllm"]["model"] = argv[argv.index("serve") + 1]
        models["own"] = {"serve": []}
        config = {"max_loaded": 1, "min_loaded": 0.0, "load_timeout": PATIENCE}
        super().__init__(folder, config | {"wait_timeout": PATIENCE, "models": models})

    def chat(self, model, **fields):
        with self.connect(timeout=PATIENCE) as connection:
            reply = connection.request("POST", CHAT, {"model": model, **GREEDY, **fields})
            assert reply.body
            return reply

    def direct(self, model):
        """A connection to the model's own server."""
        [server] = self.model_stats(model)["servers"]
        port = int(server["address"].rpartition(":")[2])
        return Connection("127.0.0.1", port, timeout=PATIENCE)

    def get_directly(self, model, path):
        with self.direct(model) as connection:
            reply = connection.request("GET", path)
            assert reply.body is not None
            return reply


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    if not any(os.environ.get(name) for name in VARIABLES.values()):
        pytest.skip(f"{' and '.join(VARIABLES.values())} name no server")
    with loopback_only():
        router = Fleet(tmp_path_factory.mktemp("router"))
        yield router.wait_ready()
        router.stop()


@pytest.fixture(scope="module", params=VARIABLES)
def kind(request, router):
    if request.param not in router.kinds:
        pytest.skip(f"{VARIABLES[request.param]} names no server")
    return request.param


def text_of(body):
    deltas = [event["choices"][0]["delta"] for event in events_of(body) if event]
    return "".join(delta.get("content") or "" for delta in deltas)


def test_a_stream_is_passed_on_event_by_event_and_says_what_the_whole_answer_says(router, kind):
    with router.connect(timeout=PATIENCE) as connection:
        body = {"model": kind, **GREEDY, "stream": True}
        reply = connection.request("POST", CHAT, body)
        pieces = list(reply.pieces())
    assert reply.header("content-type").startswith("text/event-stream")
    assert len(pieces) > 5
    assert b"".join(pieces).endswith(b"data: [DONE]\n\n")
    whole = router.chat(kind)
    assert whole.status == 200
    assert text_of(b"".join(pieces)) == whole.json["choices"][0]["message"]["content"] != ""


def test_an_error_is_the_servers_own(router, kind):
    router.chat(kind)
    name = router.get_directly(kind, "/v1/models").json["data"][0]["id"]
    for wrong in ({"messages": 5}, {"messages": USER, "temperature": "hot"}):
        with router.direct(kind) as connection:
            direct = connection.request("POST", CHAT, {"model": name, **wrong})
            expected = (direct.status, direct.body)
        assert expected[0] >= 400
        reply = router.chat(kind, **wrong)
        assert (reply.status, reply.body) == expected


def test_a_client_that_leaves_ends_the_request_at_the_server(router, kind):
    router.chat(kind)
    with router.connect(timeout=PATIENCE) as connection:
        connection.send("POST", CHAT, {"model": kind, **LONG})
        next(connection.read_reply().pieces())
        eventually(lambda: not is_idle(kind, lambda path: router.get_directly(kind, path)))
    start = time.monotonic()
    eventually(lambda: is_idle(kind, lambda path: router.get_directly(kind, path)), timeout=60)
    print(f"{kind}: idle {time.monotonic() - start:.2f} s after its client")
    assert router.model_stats(kind)["num_running"] == 0


def test_models_of_all_servers_take_turns(router):
    order = [*router.kinds, "own"] * 2
    for model in order:
        start = time.monotonic()
        body = router.chat(model, stream=True).body
        assert body.endswith(b"data: [DONE]\n\n")
        assert text_of(body)
        print(f"{model}: {time.monotonic() - start:.1f} s with its load")
    stats = router.stats()["models"]
    assert all(one["num_loads"] >= 2 for one in stats.values())
    for count in ("num_cut", "num_failed", "num_crashes"):
        assert [one[count] for one in stats.values()] == [0] * len(stats)
    assert len(router.children()) == 1
