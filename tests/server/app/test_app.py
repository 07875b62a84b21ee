"""The whole application over ASGI. ``ancestor`` tests keep behaviour of the ancestor project."""

import threading

import anyio
import msgspec
import pytest
from anyio import lowlevel

from core.contract.errors import ModelLoadError
from core.contract.info import ModelPath
from core.text.tokenizer import Tokenizer
from server.app.app import create_app
from server.app.edge import with_edge
from server.bridge.bridge import BridgeState
from server.generation.job import Job
from server.settings.settings import Settings, parse_settings
from tests.support.asgi import Exchange, ask
from tests.support.engines import AnsweringEngine, last, loaded, out, request, words
from tests.support.tokenizers import byte_fallback, byte_level

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
USER = [{"role": "user", "content": "hi"}]


@pytest.fixture
def answering():
    return AnsweringEngine(words("Hi", " there!"))


async def test_ancestor_manager_is_made_once_per_app(start_app, answering):
    app = await start_app(answering)
    serving = app.litestar.state.serving
    for path in (CHAT, COMPLETIONS, "/generate", CHAT):
        assert (
            await ask(app, "POST", path, {"messages": USER} if path == CHAT else {"prompt": "x"})
        ).status == 200
    assert app.litestar.state.serving is serving
    assert serving.bridge is app.bridge
    assert len(answering.requests) == 4  # also those that are not streamed
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("roseinfer-core") == 1


@pytest.mark.parametrize("path", [COMPLETIONS, "/generate"])
async def test_ancestor_empty_prompt_becomes_one_eos_or_bos_token(start_app, path):
    for tokenizer, start in [(byte_level(), "<|im_end|>"), (byte_fallback(), "<s>")]:
        engine = AnsweringEngine(words("x"))
        app = await start_app(engine, tokenizer=tokenizer)
        assert (await ask(app, "POST", path, {"prompt": ""})).status == 200
        [request] = engine.requests
        assert request.prompt_token_ids == (tokenizer.convert_tokens_to_ids(start),)


async def test_ancestor_pre_tokenized_prompts_are_accepted(start_app, answering):
    app = await start_app(answering)
    assert (await ask(app, "POST", COMPLETIONS, {"prompt": [[1, 2], [3]]})).status == 200
    assert [r.prompt_token_ids for r in answering.requests] == [(1, 2), (3,)]


async def test_ancestor_tokenizer_workers(start_app, answering, monkeypatch):
    """Worker threads tokenize prompts, as many at once as there are workers."""
    app = await start_app(answering, tokenizer_workers=2)
    all_busy, names = threading.Barrier(2, timeout=10), []
    encode = Tokenizer.encode

    def slow(self, text, **options):
        names.append(threading.current_thread().name)
        all_busy.wait()
        return encode(self, text, **options)

    monkeypatch.setattr(Tokenizer, "encode", slow)
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(ask, app, "POST", COMPLETIONS, {"prompt": "x"})
    assert len(names) == 4
    assert threading.current_thread().name not in names
    assert "roseinfer-core" not in names


async def test_ancestor_a_disconnect_discards_the_request(start_app, engine):
    app = await start_app(engine)
    for stream in (False, True):
        engine.added.clear()
        engine.aborted.clear()
        body = msgspec.json.encode({"messages": USER, "stream": stream, "n": 2})
        exchange = Exchange("POST", CHAT, chunks=[body])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.run, app)
            await engine.admit(2)
            exchange.disconnect()
            await exchange.done()
        engine.step_with()
        await engine.until(lambda e: len(e.aborted) == 2)
        assert not engine.live
        assert not app.bridge._routes


async def test_ancestor_a_dead_engine_is_not_healthy(start_app, engine, soon):
    app = await start_app(engine)
    for path in ("/health", "/v1/health"):
        exchange = await ask(app, "GET", path)
        assert (exchange.status, exchange.json["status"]) == (200, "ok")
    exchange = Exchange("POST", CHAT, chunks=[msgspec.json.encode({"messages": USER})])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        await engine.admit(1)
        engine.crash()
        await exchange.done()
    assert exchange.status == 503
    assert "secret" not in exchange.body.decode()
    with soon():
        while app.bridge.state is BridgeState.READY:
            await lowlevel.checkpoint()
    for path in ("/health", "/v1/health"):
        health = await ask(app, "GET", path)
        assert (health.status, health.json["status"]) == (503, "failed")
        assert "secret" not in health.body.decode()
    assert (await ask(app, "POST", CHAT, {"messages": USER})).status == 503


async def test_ancestor_closing_ends_every_open_stream(start_app, engine):
    app = await start_app(engine)
    body = msgspec.json.encode({"messages": USER, "stream": True})
    exchange = Exchange("POST", CHAT, chunks=[body])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        await engine.admit(1)
        await engine.say(out(engine.added[0].request_id, "x"))
        engine.free()
        assert app.bridge.close()
        await exchange.done()
    assert exchange.has_ended
    assert b'"The server is shutting down."' in exchange.writes[-1]
    assert b'"finish_reason":"stop"' not in exchange.body


async def test_health_while_loading_and_after_a_failed_load(soon):
    gate, events, notified = threading.Event(), [], anyio.Event()

    def load():
        gate.wait()
        raise ModelLoadError("no such model")

    app = create_app(
        Settings(), load=load, on_event=lambda event: (events.append(event), notified.set())
    )
    async with app.lifespan():
        asgi = with_edge(app)
        exchange = await ask(asgi, "GET", "/health")
        assert (exchange.status, exchange.json["status"]) == (503, "loading")
        for method, path, body in [
            ("POST", CHAT, {"messages": USER}),
            ("GET", "/v1/models", b""),
        ]:
            exchange = await ask(asgi, method, path, body)
            assert exchange.status == 503
            assert exchange.headers["retry-after"] == "1"
        gate.set()
        with soon():
            await notified.wait()
        exchange = await ask(asgi, "GET", "/health")
        assert (exchange.status, exchange.json["status"]) == (503, "failed")
    assert events[0].is_load_error


async def test_the_lifespan_ends_the_core_thread(answering, soon):
    ready = anyio.Event()
    app = create_app(
        Settings(), load=lambda: loaded(answering), on_event=lambda _event: ready.set()
    )
    async with app.lifespan():
        with soon():
            await ready.wait()
        core = app.state.serving.bridge._core
        assert core.is_alive
    assert not core.is_alive


class TestModels:
    @pytest.mark.parametrize("name", ["m", "org/name", "a b:c"])
    async def test_list_and_retrieve(self, start_app, name):
        app = await start_app(served_model_names=(name,))
        listed = (await ask(app, "GET", "/v1/models")).json
        assert listed["object"] == "list"
        [model] = listed["data"]
        assert (model["id"], model["object"], model["max_model_len"]) == (name, "model", 512)
        assert (await ask(app, "GET", f"/v1/models/{name}")).json == model
        exchange = await ask(app, "GET", f"/v1/models/{name}x")
        assert (exchange.status, exchange.json["error"]["code"]) == (404, "model_not_found")

    async def test_a_model_has_several_ids(self, start_app):
        app = await start_app(served_model_names=("a", "org/b"))
        assert [model["id"] for model in (await ask(app, "GET", "/v1/models")).json["data"]] == [
            "a",
            "org/b",
        ]
        for name in ("a", "org/b"):
            assert (await ask(app, "GET", f"/v1/models/{name}")).json["id"] == name
            answer = (await ask(app, "POST", CHAT, {"messages": USER, "model": name})).json
            assert answer["model"] == "a"
        refused = await ask(app, "POST", CHAT, {"messages": USER, "model": "c"})
        assert (refused.status, refused.json["error"]["code"]) == (404, "model_not_found")
        assert "'a', 'org/b'" in refused.json["error"]["message"]

    async def test_any_id_is_accepted_if_the_operator_says_so(self, start_app):
        app = await start_app(accept_any_model_name=True, served_model_names=("a",))
        for path, body in ((CHAT, {"messages": USER}), (COMPLETIONS, {"prompt": "x"})):
            answer = await ask(app, "POST", path, body | {"model": "gpt-4o-mini"})
            assert (answer.status, answer.json["model"]) == (200, "a")
        assert (await ask(app, "GET", "/v1/models/gpt-4o-mini")).json["id"] == "gpt-4o-mini"
        assert len((await ask(app, "GET", "/v1/models")).json["data"]) == 1

    async def test_a_local_model_can_be_retrieved_and_tells_no_path(self, start_app, tmp_path):
        settings = parse_settings(["serve", str(tmp_path / "tiny")], {})
        app = await start_app(model=settings.model, served_model_names=settings.served_model_names)
        [model] = (await ask(app, "GET", "/v1/models")).json["data"]
        assert (model["id"], model["root"]) == ("tiny", "tiny")
        assert (await ask(app, "GET", "/v1/models/tiny")).json == model


class TestContext:
    """The context of the default engine is 512 tokens."""

    WORDS = "This model's maximum context length is 512 tokens. However, you"

    @pytest.mark.parametrize(
        ("path", "body", "param"),
        [
            (CHAT, {"messages": USER, "max_tokens": 600}, "messages"),
            (CHAT, {"messages": USER, "max_completion_tokens": 600}, "messages"),
            (CHAT, {"messages": [{"role": "user", "content": "xy" * 600}]}, "messages"),
            (COMPLETIONS, {"prompt": [5] * 600}, "prompt"),
            (COMPLETIONS, {"prompt": ["a", "xy" * 600]}, "prompt"),
            (COMPLETIONS, {"prompt": "a", "max_tokens": 600}, "prompt"),
            ("/generate", {"prompt": "xy" * 600}, "prompt"),
            ("/generate", {"prompt": "x", "max_new_tokens": 600}, "prompt"),
        ],
    )
    async def test_too_much_is_refused_in_openai_s_words(self, start_app, path, body, param):
        app = await start_app()
        exchange = await ask(app, "POST", path, body)
        error = exchange.json["error"]
        assert exchange.status == 400
        assert (error["type"], error["code"]) == (
            "invalid_request_error",
            "context_length_exceeded",
        )
        assert error["param"] == param
        assert error["message"].startswith(self.WORDS)

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            (CHAT, {"messages": USER, "max_tokens": 600}),
            (COMPLETIONS, {"prompt": "x", "max_tokens": 600}),
            ("/generate", {"prompt": "x", "max_new_tokens": 600}),
        ],
    )
    async def test_answers_are_shortened_to_what_fits(self, start_app, answering, path, body):
        app = await start_app(answering, clamp_max_tokens=True)
        assert (await ask(app, "POST", path, body)).status == 200
        [request] = answering.requests
        assert request.params.max_tokens == 512 - len(request.prompt_token_ids)
        too_long = {"messages": [{"role": "user", "content": "xy" * 600}], "prompt": "xy" * 600}
        field = "messages" if path == CHAT else "prompt"
        assert (await ask(app, "POST", path, {field: too_long[field]})).status == 400


class TestChat:
    @pytest.mark.parametrize(
        ("fields", "max_tokens"),
        [
            ({}, None),
            ({"max_tokens": 5}, 5),
            ({"max_completion_tokens": 7}, 7),
            ({"max_tokens": 5, "max_completion_tokens": 7}, 7),
            ({"max_tokens": None, "max_completion_tokens": None}, None),
        ],
    )
    async def test_max_tokens(self, start_app, answering, fields, max_tokens):
        app = await start_app(answering)
        assert (await ask(app, "POST", CHAT, {"messages": USER} | fields)).status == 200
        [request] = answering.requests
        expected = 512 - len(request.prompt_token_ids) if max_tokens is None else max_tokens
        assert request.params.max_tokens == expected

    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"top_logprobs": 2}, "top_logprobs"),
            ({"top_logprobs": 2, "logprobs": False}, "top_logprobs"),
            ({"tool_choice": "auto"}, "tool_choice"),
            ({"stream_options": {}}, "stream_options"),
            ({"max_tokens": 5000}, "messages"),
            (
                {"response_format": {"type": "json_schema"}, "stream": True},
                "response_format.json_schema",
            ),
            ({"logit_bias": {"x": 1}, "stream": True}, "logit_bias"),
        ],
    )
    async def test_invalid_fields_are_refused_before_any_byte(
        self, start_app, answering, fields, param
    ):
        exchange = await ask(await start_app(answering), "POST", CHAT, {"messages": USER} | fields)
        assert (exchange.status, exchange.json["error"]["param"]) == (400, param)
        assert answering.requests == []

    @pytest.mark.parametrize(
        ("fields", "logprobs"),
        [
            ({}, None),
            ({"logprobs": False}, None),
            ({"logprobs": None, "top_logprobs": 0}, None),
            ({"logprobs": True}, 0),
            ({"logprobs": True, "top_logprobs": 0}, 0),
            ({"logprobs": True, "top_logprobs": 3}, 3),
        ],
    )
    async def test_logprobs(self, start_app, answering, fields, logprobs):
        app = await start_app(answering)
        assert (await ask(app, "POST", CHAT, {"messages": USER} | fields)).status == 200
        assert answering.requests[0].params.logprobs == logprobs

    async def test_the_stream_equals_the_whole_response(self, start_app, answering):
        app = await start_app(answering)
        body = {"messages": USER, "n": 2}
        whole = (await ask(app, "POST", CHAT, body)).json
        assert [c["message"]["content"] for c in whole["choices"]] == ["Hi there!"] * 2
        exchange = await ask(app, "POST", CHAT, body | {"stream": True})
        assert exchange.headers["content-type"] == "text/event-stream"
        assert "content-encoding" not in exchange.headers
        texts = ["", ""]
        for event in exchange.body.split(b"\n\n")[:-2]:
            [choice] = msgspec.json.decode(event[6:])["choices"]
            texts[choice["index"]] += choice["delta"].get("content", "")
        assert texts == ["Hi there!"] * 2

    async def test_truncation_to_what_fits(self, start_app, answering):
        app = await start_app(answering)
        long = [{"role": "user", "content": "x" * 2000}]
        exchange = await ask(app, "POST", CHAT, {"messages": long})
        assert exchange.json["error"]["code"] == "context_length_exceeded"
        body = {"messages": long, "truncate_prompt_tokens": -1, "max_tokens": 12}
        assert (await ask(app, "POST", CHAT, body)).status == 200
        assert len(answering.requests[0].prompt_token_ids) == 500

    @pytest.mark.parametrize(("wanted", "interval"), [(None, 4), (2, 2)])
    async def test_stream_interval(self, start_app, answering, wanted, interval):
        app = await start_app(answering, stream_interval=4)
        for stream in (True, False):
            body = {"messages": USER, "stream": stream, "stream_interval": wanted}
            assert (await ask(app, "POST", CHAT, body)).status == 200
        assert [r.stream_interval for r in answering.requests] == [interval, 0]


class TestCompletions:
    @pytest.mark.parametrize(("max_tokens", "granted"), [(None, 16), (0, 0), (1, 1), (100, 100)])
    async def test_max_tokens(self, start_app, answering, max_tokens, granted):
        app = await start_app(answering)
        body = {"prompt": "x", "max_tokens": max_tokens}
        assert (await ask(app, "POST", COMPLETIONS, body)).status == 200
        assert answering.requests[0].params.max_tokens == granted

    async def test_the_default_is_clipped_to_the_context(self, start_app, answering):
        app = await start_app(answering)
        assert (await ask(app, "POST", COMPLETIONS, {"prompt": [5] * 510})).status == 200
        assert answering.requests[0].params.max_tokens == 2
        exchange = await ask(app, "POST", COMPLETIONS, {"prompt": [5] * 512})
        assert exchange.json["error"]["code"] == "context_length_exceeded"

    @pytest.mark.parametrize(("max_tokens", "kept"), [(None, 496), (0, 512), (100, 412)])
    async def test_truncation_to_what_fits(self, start_app, answering, max_tokens, kept):
        app = await start_app(answering)
        body = {"prompt": [5] * 999, "truncate_prompt_tokens": -1, "max_tokens": max_tokens}
        assert (await ask(app, "POST", COMPLETIONS, body)).status == 200
        assert len(answering.requests[0].prompt_token_ids) == kept

    async def test_prompts_and_choices(self, start_app, answering):
        app = await start_app(answering)
        body = {"prompt": ["a", "b", "c"], "n": 2, "echo": True}
        whole = (await ask(app, "POST", COMPLETIONS, body)).json
        assert [c["index"] for c in whole["choices"]] == list(range(6))
        assert [c["text"][0] for c in whole["choices"]] == list("aabbcc")
        assert whole["usage"]["prompt_tokens"] == 3
        assert whole["usage"]["completion_tokens"] == 12

    async def test_echo_is_verbatim(self, start_app):
        app = await start_app(AnsweringEngine(words("!")), tokenizer=byte_fallback())
        body = {"prompt": "  the\tZ", "echo": True}  # decoding its ids would give another text
        assert (await ask(app, "POST", COMPLETIONS, body)).json["choices"][0]["text"] == "  the\tZ!"

    async def test_too_many_requests_are_refused_before_they_are_created(
        self, start_app, answering, monkeypatch
    ):
        """A small body must neither block the event loop nor fill the memory."""
        app = await start_app(answering)

        def not_to_be_called(*_args, **_kwargs):
            raise AssertionError

        monkeypatch.setattr(Job, "requests", not_to_be_called)
        body = {"prompt": ["x"] * 1024, "n": 128, "bad_words": ["x"] * 128}
        exchange = await ask(app, "POST", COMPLETIONS, body)
        assert exchange.status == 400
        assert "131072 generations" in exchange.json["error"]["message"]

    async def test_each_prompt_has_its_own_limits(self, start_app, answering):
        app = await start_app(answering)
        body = {"prompt": [[5] * 500, [5]], "bad_words": ["fox"], "min_tokens": 5}
        assert (await ask(app, "POST", COMPLETIONS, body)).status == 200
        first, second = (r.params for r in answering.requests)
        assert (first.max_tokens, second.max_tokens) == (12, 16)
        assert first.bad_words_ids == second.bad_words_ids != ()
        body = {"prompt": [[5], [5] * 510], "min_tokens": 5}
        exchange = await ask(app, "POST", COMPLETIONS, body)
        assert (exchange.status, exchange.json["error"]["param"]) == (400, "min_tokens")

    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"best_of": 1, "n": 2}, "best_of"),
            ({"best_of": 0}, "best_of"),
            ({"best_of": 2, "stream": True}, "best_of"),
            ({"max_tokens": 512}, "prompt"),
            ({"messages": USER}, "messages"),
            ({"top_logprobs": 0}, "top_logprobs"),
            ({"max_completion_tokens": 5}, "max_completion_tokens"),
            ({"prompt": [1, "a"]}, "prompt"),
            ({"logprobs": 21}, "logprobs"),
            ({"logprobs": True}, "logprobs"),
        ],
    )
    async def test_invalid_fields_are_refused(self, start_app, answering, fields, param):
        app = await start_app(answering)
        exchange = await ask(app, "POST", COMPLETIONS, {"prompt": "x"} | fields)
        assert (exchange.status, exchange.json["error"]["param"]) == (400, param)
        assert answering.requests == []

    @pytest.mark.parametrize(
        ("fields", "logprobs", "prompt_logprobs", "num_requests"),
        [
            ({}, None, None, 1),
            ({"logprobs": 0}, 0, None, 1),
            ({"logprobs": 0, "echo": True}, 0, 0, 1),
            ({"logprobs": 3, "echo": True}, 3, 3, 1),
            ({"best_of": 3}, 0, None, 3),  # needed for ranking
            ({"best_of": 3, "logprobs": 2}, 2, None, 3),
            ({"best_of": 2, "n": 2}, None, None, 2),
            ({"best_of": 1, "stream": True}, None, None, 1),
        ],
    )
    async def test_logprobs(
        self, start_app, answering, fields, logprobs, prompt_logprobs, num_requests
    ):
        app = await start_app(answering)
        assert (await ask(app, "POST", COMPLETIONS, {"prompt": "x"} | fields)).status == 200
        assert len(answering.requests) == num_requests
        for asked in answering.requests:
            assert asked.params.logprobs == logprobs
            assert asked.params.prompt_logprobs == prompt_logprobs


class TestGenerate:
    async def test_whole(self, start_app):
        exchange = await ask(await start_app(), "POST", "/generate", {"prompt": "é: "})
        assert exchange.json == {"text": "é: Hi there!"}

    async def test_stream_is_raw_text_without_the_prompt(self, start_app):
        body = {"prompt": "é: ", "stream": True}
        exchange = await ask(await start_app(), "POST", "/generate", body)
        assert exchange.body == b"Hi there!"
        assert exchange.headers["content-type"] == "text/plain; charset=utf-8"

    @pytest.mark.parametrize(
        ("fields", "name", "value"),
        [
            ({}, "max_tokens", 64),
            ({"max_new_tokens": 3}, "max_tokens", 3),
            ({}, "temperature", 0.5),
            ({"temperature": 0}, "temperature", 0.0),
            ({"temperature": 1.5}, "temperature", 1.5),
            ({"temperature": 1.5, "do_sample": False}, "temperature", 0.0),
            ({"temperature": 1.5, "do_sample": True}, "temperature", 1.5),
            ({}, "top_k", 20),
            ({"top_k": 0}, "top_k", 0),
            ({"top_k": -1}, "top_k", 0),
            ({"top_k": 3}, "top_k", 3),
            ({}, "top_p", 0.9),
            ({"top_p": 1}, "top_p", 1.0),
            ({"top_p": 0}, "top_p", 0.0),
            ({}, "min_p", 0.1),
            ({}, "repetition_penalty", 1.2),
            ({}, "ignore_eos", False),
            ({"stop_on_eos": True}, "ignore_eos", False),
            ({"stop_on_eos": False}, "ignore_eos", True),
        ],
    )
    async def test_every_field_is_honoured(self, start_app, answering, fields, name, value):
        defaults = {
            "temperature": 0.5,
            "top_k": 20.0,
            "top_p": 0.9,
            "min_p": 0.1,
            "repetition_penalty": 1.2,
        }
        app = await start_app(answering, info={"default_sampling": defaults})
        assert (await ask(app, "POST", "/generate", {"prompt": "x"} | fields)).status == 200
        assert getattr(answering.requests[0].params, name) == value

    async def test_an_error_in_mid_stream_leaves_the_body_incomplete(self, start_app, engine):
        app = await start_app(engine)
        exchange = Exchange("POST", "/generate", chunks=[b'{"prompt":"x","stream":true}'])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.run, app)
            await engine.admit(1)
            request_id = engine.added[0].request_id
            await engine.say(out(request_id, "half a"))
            await engine.say(out(request_id, error="no"))
            await exchange.done()
        assert exchange.body == b"half a"
        assert not exchange.has_ended


async def test_stats_have_exactly_these_bytes(start_app, engine):
    app = await start_app(engine)
    stream = app.bridge.open([request()])
    await engine.admit(1)
    await engine.say(last("r"))
    stream.close()
    exchange = await ask(app, "GET", "/stats")
    assert exchange.json["num_steps"] == 1
    assert exchange.body == (
        b'{"num_running":0,"num_waiting":0,"num_free_blocks":0,"num_blocks":0,"num_steps":1,'
        b'"num_preemptions":0,"num_aborts":0,"num_failed_steps":0,"num_prompt_tokens":0,"num_cached_tokens":0,'
        b'"num_output_tokens":0,"num_refused":0,"event_loop":'
        + msgspec.json.encode(exchange.json["event_loop"])
        + b',"admission":{"num_tickets":0,"num_choices":0,"num_body_bytes":0,"num_held_bytes":0,'
        b'"num_prompt_tokens":0,"num_output_tokens":0,"num_compilations":0,"num_waiting_jobs":0,"num_running_jobs":0,'
        b'"num_abandoned_jobs":0},"model_path":{"name":"transformers\' modules",'
        b'"expected":"transformers\' modules","slower_because":""}}'
    )
    assert list(exchange.json["event_loop"]) == [
        *("num_stalls", "longest_stall_ms", "num_busy_stalls", "longest_busy_stall_ms"),
    ]


async def test_stats_say_which_path_computes(start_app, engine):
    app = await start_app(engine)
    serving = app.litestar.state.serving
    path = ModelPath(name="layer by layer", expected="all layers in one call", slower_because="so")
    serving.loaded_model = loaded(engine, path=path)
    found = (await ask(app, "GET", "/stats")).json["model_path"]
    assert found == {
        "name": "layer by layer",
        "expected": "all layers in one call",
        "slower_because": "so",
    }
    serving.loaded_model = None
    assert (await ask(app, "GET", "/stats")).json["model_path"] is None
