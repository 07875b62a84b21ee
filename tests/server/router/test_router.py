"""The router's process in front of scripted servers: what passes, unchanged and at once."""

import hashlib
import json
import re
import socket
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from compat_tests.support.http import ConnectionEnded
from compat_tests.support.waiting import eventually, pause
from tests.support.routers import CHAT, events_of, is_whole, scripted

MESSAGES, RESPONSES, OLLAMA = "/v1/messages", "/v1/responses", "/api/chat"


@pytest.fixture(scope="module")
def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def twins(start_upstream):
    return [start_upstream("twin0"), start_upstream("twin1")]


@pytest.fixture(scope="module")
def router(start_router, twins, free_port):
    dead = f"http://127.0.0.1:{free_port}"
    config = {
        "default": "a",
        "answer_timeout": 1.0,
        "models": {
            "a": {"command": scripted("a"), "aliases": ["alias-a"]},
            "b": {"command": scripted("b"), "model": "name-there"},
            "twins": {"url": [twin.url for twin in twins]},
            "half-dead": {"url": [dead, twins[0].url]},
            "dead": {"url": dead},
            "moody": {"url": twins[1].url},
            **{f"k{number}": {"command": scripted("k")} for number in range(8)},
            "keyed": {"url": twins[0].url + "/v1", "api_key_env": "THEIR_KEY"},
        },
    }
    return start_router(config, "--api-key", "ours", env={"THEIR_KEY": "theirs"})


@pytest.fixture
def post(router):
    def post(path, body, **headers):
        given = {"authorization": "Bearer ours", **headers}
        return router.post(path, body, given)

    return post


def received(reply):
    assert reply.status == 200, reply.body
    return reply.json["received"]


def test_bytes_pass_unchanged_and_keys_are_replaced(post):
    data = b'{ "model":"a" , "temperature": 1.0e0, "text":"\\u00e9\xc3\xa9", "dup": 1, "dup": 2}'
    got = received(post(CHAT + "?beta=true&x=%2F", data, **{"x-custom": "1", "x-api-key": "k"}))
    assert got["sha256"] == hashlib.sha256(data).hexdigest()
    assert (got["method"], got["target"]) == ("POST", CHAT + "?beta=true&x=%2F")
    headers = dict(got["headers"])
    assert headers["x-custom"] == "1"
    assert headers["content-length"] == str(len(data))
    assert headers["x-forwarded-for"] == "127.0.0.1"
    assert not {"authorization", "x-api-key"} & headers.keys()
    assert "ours" not in json.dumps(got)


def test_a_servers_own_key_and_base_path(post):
    got = received(post(CHAT, {"model": "keyed"}))
    assert dict(got["headers"])["authorization"] == "Bearer theirs"
    assert got["target"] == CHAT


def test_headers_of_the_answer_pass_and_the_id_is_one(post):
    reply = post(CHAT, {"model": "a", "stream": True}, **{"x-request-id": "mine"})
    assert reply.header("x-upstream") == "a"
    assert reply.header("x-request-id") == "mine"
    assert reply.header("date")
    assert is_whole(reply.body, 3)
    got = received(post(CHAT, {"model": "a"}, **{"x-request-id": "mine"}))
    assert dict(got["headers"])["x-request-id"] == "mine"


@pytest.mark.parametrize("name", ["a", "alias-a"])
def test_names_and_aliases(post, name):
    assert post(CHAT, {"model": name}).json["name"] == "a"


def test_servers_that_do_not_know_the_aliases_get_the_name(post):
    data = b'{"metadata": {"model": "alias-a"}, "model": "alias-a"}'
    expected = data.replace(b', "model": "alias-a"', b', "model": "a"')
    assert received(post(CHAT, data))["sha256"] == hashlib.sha256(expected).hexdigest()


def test_a_model_may_have_another_name_there(post):
    data = b'{"model" : "b", "metadata": {"model": "b"}}'
    expected = data.replace(b': "b", ', b': "name-there", ')
    assert received(post(CHAT, data))["sha256"] == hashlib.sha256(expected).hexdigest()


@pytest.mark.parametrize(
    "path",
    [CHAT, "/v1/completions", MESSAGES, RESPONSES, OLLAMA, "/v1/embeddings", "/chat/completions"],
)
def test_every_door_passes_and_has_a_default(post, path):
    assert received(post(path, {"model": "a"}))["target"] == path
    assert received(post(path, {}))["target"] == path
    if path == OLLAMA:
        assert received(post(path, {"model": "a:latest"}, **{"content-type": None}))


@pytest.mark.parametrize(
    ("path", "target"),
    [
        (f"/{CHAT}", CHAT),
        ("/v1//chat/%63ompletions/?x=%2F%2F", f"{CHAT}?x=%2F%2F"),
        ("//chat/completions", "/chat/completions"),
        ("/v1/ch%61t/completions", "/v1/ch%61t/completions"),  # nothing to change
    ],
)
def test_a_server_sees_the_path_that_was_checked(post, path, target):
    assert received(post(path, {}))["target"] == target


def test_unknown_models_and_routes_are_refused_in_the_shape_of_the_door(post, router):
    reply = post(CHAT, {"model": "x"})
    assert (reply.status, reply.json["error"]["code"]) == (404, "model_not_found")
    assert post(MESSAGES, {"model": "x"}).json["type"] == "error"
    assert isinstance(post(OLLAMA, {"model": "x"}).json["error"], str)
    assert post("/v1/unknown", {}).json["error"]["code"] == "unknown_url"
    assert post("/v1/unknown", {"model": "a"}).status == 200  # that server may know it
    assert router.get("/nothing", {"authorization": "Bearer ours"}).status == 404


def test_what_is_no_request_is_refused_here(post, router):
    assert post(CHAT, b"{").status == 400
    assert post(CHAT, b"").status == 400
    assert post(CHAT, {"model": 5}).json["error"]["param"] == "model"
    assert post(CHAT, {"model": "a"}, **{"content-type": "text/plain"}).status == 415
    page = {"content-type": "text/plain", "origin": "http://127.0.0.1"}
    assert post(OLLAMA, {"model": "a"}, **page).status == 415
    assert router.post(CHAT, {"model": "a"}).status == 401
    assert router.post(CHAT, {"model": "a"}, {"host": "evil.example"}).status == 403


def test_the_lists_join_all_models(router):
    key = {"authorization": "Bearer ours"}
    names = [card["id"] for card in router.get("/v1/models", key).json["data"]]
    started = [f"k{number}" for number in range(8)]
    assert names == ["a", "b", "twins", "half-dead", "dead", "moody", *started, "keyed", "alias-a"]
    card = router.get("/v1/models/alias-a", key).json
    assert (card["id"], card["root"]) == ("alias-a", "a")
    assert router.get("/v1/models/x", key).status == 404
    assert router.get("/models", key).json["data"]
    assert {m["name"] for m in router.get("/api/tags", key).json["models"]} >= {"a", "twins"}
    assert router.get("/api/version", key).json["version"]
    assert router.get("/v1/models").status == 401
    assert [router.get(path).status for path in ("/health", "/readyz", "/livez")] == [200] * 3


def test_prometheus_reads_the_counters_of_every_model(router, post):
    post(CHAT, {"model": "a"})
    page = router.get("/metrics", {"authorization": "Bearer ours"}).text
    families = {family.name: family for family in text_string_to_metric_families(page)}
    of_a = {
        name: [s for s in f.samples if s.labels.get("model") == "a"] for name, f in families.items()
    }
    assert of_a["roseinfer_route_requests"][0].value >= 1
    assert of_a["roseinfer_route_model_state"][0].labels["state"] == "ready"
    assert of_a["roseinfer_route_server_available"][0].value == 1
    assert router.get("/metrics").status == 401


def test_a_stream_is_passed_on_event_by_event_and_a_client_that_leaves_ends_it(router, twins):
    body = {"model": "keyed", "stream": True, "n": 9, "pause_after": 2}
    before = twins[0].log()["requests"].count("left")
    with router.connect() as connection:
        connection.send("POST", CHAT, body, {"authorization": "Bearer ours"})
        pieces = connection.read_reply().pieces()
        got = b""
        while got.count(b"\n\n") < 2:
            got += next(pieces)
        assert [event["sequence_number"] for event in events_of(got)] == [0, 1]
        assert twins[0].log()["open"] == 1
    eventually(lambda: twins[0].log()["requests"].count("left") == before + 1)
    assert twins[0].log()["open"] == 0


def test_a_client_that_leaves_before_the_answer_ends_it_too(router, twins):
    before = twins[0].log()["requests"].count("left")
    with router.connect() as connection:
        body = {"model": "keyed", "hang": True}
        connection.send("POST", CHAT, body, {"authorization": "Bearer ours"})
        eventually(lambda: twins[0].log()["open"] == 1)
    eventually(lambda: twins[0].log()["requests"].count("left") == before + 1)


def test_a_slow_client_gets_every_byte_in_order_and_holds_the_server_back(router):
    body = {"model": "a", "stream": True, "n": 400, "size": 20_000}
    with router.connect(receive_buffer=4096) as connection:
        connection.send("POST", CHAT, body, {"authorization": "Bearer ours"})
        reply, got = connection.read_reply(), []
        for number, piece in enumerate(reply.pieces()):
            got.append(piece)
            if number == 5:  # meanwhile everything on the way gets full
                pause(0.2)
                assert eventually(lambda: router.model_stats("a")["num_running"] == 1)
        assert is_whole(b"".join(got), 400)


def test_a_router_without_requests_wakes_only_to_know_the_time(router):
    """Not ten times a second, as uvicorn does."""

    def num_wakes():
        text = Path(f"/proc/{router.pid}/status").read_text()
        return int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", text)[1])

    eventually(lambda: router.stats()["num_open"] == 0)
    before = num_wakes()
    pause(2.0)
    assert num_wakes() - before < 10


# A server that fails


@pytest.mark.parametrize(
    ("model", "path", "is_error"),
    [
        ("k0", CHAT, lambda event: event["error"]["type"] == "server_error"),
        ("k1", "/v1/completions", lambda event: event["error"]["type"] == "server_error"),
        ("k2", MESSAGES, lambda event: event["error"]["type"] == "api_error"),
        ("k3", RESPONSES, lambda event: (event["type"], event["sequence_number"]) == ("error", 2)),
    ],
)
def test_a_server_killed_in_mid_stream_ends_it_with_an_error_event(
    post, router, model, path, is_error
):
    reply = post(path, {"model": model, "stream": True, "n": 5, "die_after": 2})
    *events, last = events_of(reply.body)
    assert [event["sequence_number"] for event in events] == [0, 1]
    assert is_error(last)
    assert b"[DONE]" not in reply.body
    eventually(lambda: router.model_stats(model)["num_crashes"] == 1)
    assert is_whole(post(CHAT, {"model": model, "stream": True}).body, 3)  # it is there again


def test_lines_end_with_an_error_line(post):
    body = {"model": "k4", "stream": True, "lines": True, "n": 5, "die_after": 2}
    lines = post(OLLAMA, body).body.splitlines()
    assert "broken off" in json.loads(lines[-1])["error"]
    assert len(lines) == 3


def test_a_stream_cut_in_the_middle_of_an_event_is_cut_for_the_client_too(router):
    body = {"model": "k5", "stream": True, "n": 5, "half": 1}
    with router.connect() as connection:
        reply = connection.request("POST", CHAT, body, {"authorization": "Bearer ours"})
        with pytest.raises(ConnectionEnded):
            reply.body  # noqa: B018 - reads it


def test_a_server_killed_before_its_answer_is_a_502_and_not_asked_twice(post, router):
    reply = post(CHAT, {"model": "k6", "die_after": -1})
    assert (reply.status, reply.json["error"]["code"]) == (502, "bad_gateway")
    assert reply.header("x-should-retry") == "false"
    assert post(MESSAGES, {"model": "k7", "die_after": -1}).json["type"] == "error"
    assert router.model_stats("k6")["num_loads"] == 1
    assert router.get("/health").status == 200


def test_what_cannot_be_reached_has_seen_nothing_and_another_is_asked(post, router):
    for _ in range(8):
        assert post(CHAT, {"model": "half-dead"}).json["name"] == "twin0"
    stats = router.get("/stats", {"authorization": "Bearer ours"}).json["models"]["half-dead"]
    assert stats["num_retries"] >= 1
    assert stats["num_retries"] <= 4  # it pauses
    assert [server["is_available"] for server in stats["servers"]] == [False, True]


def test_if_no_server_can_be_reached_it_is_a_503_that_may_be_repeated(post):
    for _ in range(6):
        reply = post(CHAT, {"model": "dead"})
        assert reply.status == 503
        assert int(reply.header("retry-after")) >= 1
        assert reply.header("x-should-retry") == "true"


def test_a_refusal_is_tried_elsewhere_and_the_last_one_passed_on_unchanged(post, twins):
    before = [len(twin.log()["requests"]) for twin in twins]
    refusal = {"error": {"message": "full", "code": "mine"}}
    reply = post(CHAT, {"model": "twins", "status": 503, "body": refusal})
    assert (reply.status, reply.json) == (503, refusal)
    assert reply.header("retry-after") == "7"
    assert [len(twin.log()["requests"]) for twin in twins] == [n + 1 for n in before]
    reply = post(CHAT, {"model": "twins", "status": 400, "body": refusal})
    assert (reply.status, reply.json) == (400, refusal)
    assert sum(len(twin.log()["requests"]) for twin in twins) == sum(before) + 3


def test_a_server_that_keeps_refusing_pauses_until_it_answers(post, router):
    def is_available():
        return router.model_stats("moody")["servers"][0]["is_available"]

    for _ in range(3):
        assert is_available()
        assert post(CHAT, {"model": "moody", "status": 503}).status == 503
    assert not is_available()
    assert post(CHAT, {"model": "moody"}).status == 200
    assert is_available()


def test_a_server_that_never_answers_is_a_504(post):
    reply = post(CHAT, {"model": "a", "hang": True})
    assert (reply.status, reply.json["error"]["code"]) == (504, "request_timeout")


def test_a_server_that_stops_in_mid_stream_ends_it_with_an_error(post):
    reply = post(CHAT, {"model": "a", "stream": True, "n": 5, "pause_after": 1})
    assert [event.get("sequence_number") for event in events_of(reply.body)] == [0, None]
    assert "sent nothing for 1 s" in events_of(reply.body)[-1]["error"]["message"]


# Several servers


def test_a_conversation_stays_with_its_server(post):
    def server_of(text, *more):
        messages = [{"role": "user", "content": text}, *more]
        return post(CHAT, {"model": "twins", "messages": messages}).json["name"]

    more = {"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}
    first = {text: server_of(text) for text in "abcdefghijklmnopqrstuvwx"}
    assert {text: server_of(text, *more) for text in first} == first
    assert len(set(first.values())) == 2


def test_stored_responses_are_found_on_their_server_and_by_their_owner(post, router):
    key = {"authorization": "Bearer ours"}
    reply = post(RESPONSES, {"model": "twins", "input": "x"})
    name, response_id = reply.json["name"], reply.json["id"]
    for _ in range(4):
        got = router.get(f"{RESPONSES}/{response_id}", key)
        assert (got.status, got.json["name"]) == (200, name)
        body = {"model": "twins", "input": "z", "previous_response_id": response_id}
        assert post(RESPONSES, body).json["name"] == name
    got = router.get(f"{RESPONSES}/{response_id}/input_items?limit=3", key).json["received"]
    assert got["target"].endswith("/input_items?limit=3")
    assert router.get(f"{RESPONSES}/resp_unknown", key).status == 404
    body = {"model": "twins", "previous_response_id": "resp_unknown"}
    assert post(RESPONSES, body).json["error"]["code"] == "previous_response_not_found"
    streamed = events_of(post(RESPONSES, {"model": "twins", "stream": True}).body)
    assert router.get(f"{RESPONSES}/{streamed[0]['id']}", key).status == 200


def test_a_busy_server_is_not_replaced_by_one_that_has_not_the_response(post, twins):
    reply = post(RESPONSES, {"model": "twins", "input": "x"})
    before = [len(twin.log()["requests"]) for twin in twins]
    body = {"model": "twins", "previous_response_id": reply.json["id"], "status": 429}
    assert post(RESPONSES, body).status == 429
    gained = [len(twin.log()["requests"]) - n for twin, n in zip(twins, before, strict=True)]
    assert gained == [reply.json["name"] == f"twin{number}" for number in range(2)]
