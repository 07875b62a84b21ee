"""Answers behind Ray Serve are those of a direct server, byte for byte."""

from __future__ import annotations

import re
from typing import Any

import pytest

from compat_tests.support.api import check_error
from compat_tests.support.http import Connection, Reply
from compat_tests.support.process import ServerProcess
from compat_tests.support.waiting import eventually
from tests.ray.fleet import CHAT, PATIENCE, chat

pytestmark = pytest.mark.ray

VARIABLE = re.compile(rb'"(id|created|response_id|item_id)":(\d+|"[^"]*")')
"""What differs between two runs of one server."""

OWN_HEADERS = {"date", "server", "openai-processing-ms", "connection", "transfer-encoding"}
"""Headers of a connection, and times."""

FLAGS = {"max_num_seqs": 4, "kv_cache_memory": "64MB", "log_level": "warning"}

HI = {"messages": [{"role": "user", "content": "Hello!"}], "temperature": 0, "max_tokens": 24}

ONCE = {"prompt": "Once", "temperature": 0, "max_tokens": 9, "stream": True}

REQUESTS = {
    "stream": ("POST", CHAT, HI | {"stream": True, "stream_options": {"include_usage": True}}),
    "whole": ("POST", CHAT, HI),
    "two choices": ("POST", CHAT, HI | {"n": 2, "seed": 7, "temperature": 1}),
    "completion": ("POST", "/v1/completions", ONCE),
    "anthropic": ("POST", "/v1/messages", HI | {"stream": True}),
    "wrong value": ("POST", CHAT, HI | {"temperature": 9}),
    "no JSON": ("POST", CHAT, b"{"),
    "no such model": ("POST", CHAT, HI | {"model": "nobody"}),
    "no such route": ("GET", "/v1/nowhere", None),
    "wrong method": ("GET", CHAT, None),
    "models": ("GET", "/v1/models", None),
    "health": ("GET", "/health", None),
}


@pytest.fixture(scope="module")
def direct():
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in FLAGS.items()]
    server = ServerProcess(*flags).wait_ready()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def served(cluster):
    """The application as `serve run server.ray.app:build` builds it."""
    cluster.deploy(FLAGS | {"replicas": 1, "num_cpus": 0.2})
    yield cluster
    cluster.delete("rose")


def seen(port: int, request: str) -> tuple:
    method, path, body = REQUESTS[request]
    with Connection("127.0.0.1", port, timeout=PATIENCE) as connection:
        reply = connection.request(method, path, body, {"x-request-id": "mine"})
        headers = [pair for pair in reply.headers if pair[0] not in OWN_HEADERS]
        if "content-length" in dict(headers):
            headers.remove(("content-length", str(len(reply.body))))
        if allowed := reply.header("allow"):  # a set
            headers.remove(("allow", allowed))
            headers.append(("allow", ", ".join(sorted(allowed.split(", ")))))
        return reply.status, sorted(headers), VARIABLE.sub(rb'"\1":0', reply.body)


def test_answers_are_those_of_a_direct_server(direct, served, matrix):
    for request in REQUESTS:
        wanted = seen(direct.port, request)
        assert seen(served.port, request) == wanted, request
        assert ("x-request-id", "mine") in wanted[1]
    kinds = ", ".join(REQUESTS)
    matrix.add("nothing", f"equal to a direct server's, in bytes and headers: {kinds}")


def test_each_model_has_an_application_below_its_own_prefix(cluster, served):
    small = {"served_model_name": "small", "replicas": 1, "num_cpus": 0.2}
    cluster.deploy(FLAGS | small, name="small", prefix="/small")

    def ask(method: str, path: str, body: Any = None) -> Reply:
        with Connection("127.0.0.1", cluster.port, timeout=PATIENCE) as connection:
            reply = connection.request(method, path, body)
            assert reply.body
            return reply

    models = ask("GET", "/small/v1/models").json
    assert [model["id"] for model in models["data"]] == ["small"]
    assert ask("POST", "/small" + CHAT, chat(4, model="small")).json["model"] == "small"
    assert ask("POST", "/small/completions", ONCE).status == 200
    refused = ask("POST", "/small/v1/messages", HI | {"model": "nobody"})
    assert refused.json["type"] == "error"  # Anthropic's shape
    other = ask("POST", CHAT, chat(4, model="small"))
    assert other.status == 404
    check_error(other)
    cluster.delete("small")
    eventually(lambda: ask("GET", "/small/v1/models").status == 404, timeout=PATIENCE)
