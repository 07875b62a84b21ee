"""Requests through the whole application: what they hold, and that nothing is left of them."""

import threading

import anyio
import anyio.lowlevel
import msgspec
import pytest

from core.contract.info import PoolingInfo
from core.text.tokenizer import Tokenizer
from server.apis.openai.chat import translate_chat
from server.http.decoding import Punctuation, decoded_size
from server.workers.pools import checkpoint
from tests.support.asgi import Exchange, ask
from tests.support.engines import AnsweringEngine, last, out, settle, until, words

pytestmark = pytest.mark.anyio

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "hi"}]
JSON = {"content-type": "application/json"}
VECTOR = b"\0\0\x80?" * 2  # two times 1.0


@pytest.fixture
async def free(soon):
    """Assert that nothing is held."""

    async def free(app):
        with soon():
            while any(value for name, value in held(app).items() if name != "num_refused"):
                await anyio.lowlevel.checkpoint()

    return free


def held(app):
    serving = app.litestar.state.serving
    admission, pools = serving.admission, serving.pools.all
    return {
        "tickets": admission.num_tickets,
        "choices": admission.choices.held,
        "bytes": admission.body_bytes.held,
        "memory": admission.memory.held,
        "prompt_tokens": admission.prompt_tokens.held,
        "output_tokens": admission.output_tokens.held,
        "waiting": sum(pool.num_waiting for pool in pools),
        "running": sum(pool.num_running for pool in pools),
        "abandoned": sum(pool.num_abandoned for pool in pools),
    }


def chat(*, size=0, **fields):
    body = msgspec.json.encode({"messages": USER} | fields).ljust(size)
    return Exchange("POST", CHAT, chunks=[body], headers=JSON)


class TestHeld:
    async def test_stage_by_stage(self, start_app, engine, free):
        app = await start_app(engine)
        body = msgspec.json.encode({"prompt": ["abc", "de"], "n": 2, "max_tokens": 7})
        headers = JSON | {"content-length": str(len(body))}
        exchange = Exchange("POST", COMPLETIONS, chunks=[body], headers=headers, is_complete=False)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.run, app)
            await settle()
            uploading = held(app)
            assert (uploading["tickets"], uploading["choices"]) == (1, 1)
            assert uploading["bytes"] == len(body)
            exchange.finish()
            await engine.admit(4)
            running = held(app)
            assert (running["choices"], running["bytes"]) == (4, 0)
            assert running["memory"] == decoded_size(body, Punctuation(body))
            assert running["output_tokens"] == 4 * 7
            assert running["prompt_tokens"] == sum(
                len(r.prompt_token_ids) for r in engine.added[::2]
            )
            await engine.say(last(engine.added[0].request_id), last(engine.added[1].request_id))
            assert held(app)["choices"] == 2
            await engine.say(*[last(r.request_id) for r in engine.added[2:]])
            await exchange.done()
        assert exchange.status == 200
        await free(app)

    async def test_texts_to_embed_hold_their_tokens_until_the_last_has_ended(
        self, start_app, engine, free
    ):
        app = await start_app(engine, info={"pooling": PoolingInfo(task="embed", size=2)})
        texts = msgspec.json.encode({"input": ["abc", "de", "f"]})
        exchange = Exchange("POST", "/v1/embeddings", chunks=[texts], headers=JSON)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.run, app)
            await engine.admit(3)
            num_tokens = sum(len(r.prompt_token_ids) for r in engine.added)
            for request in engine.added:
                assert (held(app)["choices"], held(app)["prompt_tokens"]) == (1, num_tokens)
                await engine.say(last(request.request_id, vector=VECTOR))
            await exchange.done()
        assert exchange.status == 200
        await free(app)

    async def test_an_undeclared_body_counts_as_it_arrives(self, start_app, free):
        app = await start_app(max_body_size=1000)
        limit = app.litestar.state.serving.admission.body_bytes.limit
        uploads = [
            Exchange("POST", CHAT, chunks=[b" " * 900], headers=JSON, is_complete=False)
            for _ in range(limit // 900 + 1)
        ]
        async with anyio.create_task_group() as tasks:
            for upload in uploads:
                tasks.start_soon(upload.run, app)
            await uploads[-1].done()
            assert uploads[-1].status == 429
            assert held(app)["bytes"] == 900 * (len(uploads) - 1)
            for upload in uploads:
                upload.disconnect()
        await free(app)

    @pytest.mark.parametrize(
        ("path", "body", "status"),
        [
            (CHAT, {"messages": USER}, 200),
            (CHAT, {"messages": USER, "stream": True}, 200),
            (CHAT, {"messages": USER, "model": "other"}, 404),
            (CHAT, {"messages": USER, "n": -1}, 400),
            (CHAT, {"messages": []}, 400),
            (CHAT, {"messages": USER, "guided_regex": "("}, 400),
            (COMPLETIONS, {"prompt": [1, "a"]}, 400),
            ("/generate", {"prompt": "x"}, 200),
            ("/tokenize", {"prompt": "x"}, 200),
            ("/detokenize", {"tokens": [1]}, 200),
            ("/detokenize", {"tokens": [10**6]}, 400),
        ],
    )
    async def test_nothing_is_held_after_any_answer(self, start_app, free, path, body, status):
        app = await start_app()
        ended = []
        app.litestar.state.serving.trimmer.request_ended = lambda: ended.append(path)
        assert (await ask(app, "POST", path, body)).status == status
        await free(app)
        assert ended == [path]


class TestRefusals:
    @pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/generate", "/tokenize", "/detokenize"])
    async def test_a_full_queue_refuses_before_the_body_is_read(self, start_app, engine, path):
        app = await start_app(engine)
        budget = app.litestar.state.serving.admission.choices
        budget.take("127.0.0.1", budget.limit)
        upload = Exchange("POST", path, chunks=[b"x" * 100], headers=JSON)
        await upload.run(app)
        assert upload.status == 429
        assert 1 <= int(upload.headers["retry-after"]) <= 60
        assert len(upload._incoming) == 1  # nothing was read
        budget.give_back("127.0.0.1", budget.limit)

    async def test_too_many_choices_are_refused_before_tokenizing(
        self, start_app, engine, monkeypatch
    ):
        app = await start_app(engine)
        budget = app.litestar.state.serving.admission.choices

        def not_to_be_called(*_args, **_kwargs):
            raise AssertionError

        monkeypatch.setattr(Tokenizer, "encode", not_to_be_called)
        prompts = {"prompt": ["x"] * 1000, "n": 1}
        exchange = await ask(app, "POST", COMPLETIONS, prompts)
        assert exchange.status == 400
        message = exchange.json["error"]["message"]
        assert "1000" in message
        assert str(budget.limit) in message
        budget.take("127.0.0.1", budget.limit - 2)
        assert (await ask(app, "POST", COMPLETIONS, {"prompt": ["x"] * 3})).status == 429
        budget.give_back("127.0.0.1", budget.limit - 2)

    async def test_a_declared_body_beyond_every_limit_is_a_413(self, start_app):
        app = await start_app(max_body_size=1000)
        limit = app.litestar.state.serving.admission.body_bytes.limit
        headers = JSON | {"content-length": str(limit + 1)}
        upload = Exchange("POST", CHAT, chunks=[b" " * 10], headers=headers)
        await upload.run(app)
        assert upload.status == 413

    @pytest.mark.parametrize(
        ("setting", "body", "param"),
        [
            ("max_queued_prompt_tokens", {"prompt": [[5] * 60, [5] * 60]}, "prompt"),
            ("max_queued_output_tokens", {"prompt": "x", "n": 2, "max_tokens": 60}, "max_tokens"),
        ],
    )
    async def test_tokens_that_never_fit(self, start_app, free, setting, body, param):
        app = await start_app(**{setting: 100})
        exchange = await ask(app, "POST", COMPLETIONS, body)
        assert (exchange.status, exchange.json["error"]["param"]) == (400, param)
        assert "120" in exchange.json["error"]["message"]
        assert "100" in exchange.json["error"]["message"]
        await free(app)

    async def test_objects_that_never_fit_and_do_not_fit_now(self, start_app, engine, free):
        """Cut to two tokens, a prompt of 100 kB is held as long as one that is not cut."""
        app = await start_app(engine)
        memory = app.litestar.state.serving.admission.memory
        memory.limit = 150_000
        fields = {"truncate_prompt_tokens": 2, "max_tokens": 1}
        first = Exchange(
            "POST",
            COMPLETIONS,
            chunks=[msgspec.json.encode({"prompt": "a" * 10**5} | fields)],
            headers=JSON,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.run, app)
            await engine.admit(1)
            assert 10**5 < memory.held < 110_000
            again = await ask(app, "POST", COMPLETIONS, {"prompt": "a" * 10**5} | fields)
            assert (again.status, again.headers["retry-after"]) == (429, "1")
            never = await ask(app, "POST", COMPLETIONS, {"prompt": [5] * 3000})
            assert never.status == 400
            assert "150000" in never.json["error"]["message"]
            first.disconnect()
        await free(app)

    async def test_a_whole_answer_is_held_until_it_is_read(self, start_app, free):
        app = await start_app()
        memory = app.litestar.state.serving.admission.memory
        body = msgspec.json.encode({"prompt": "a" * 400, "return_token_strs": True})
        exchange = Exchange("POST", "/tokenize", chunks=[body], headers=JSON)
        exchange.block()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.run, app)
            await until(lambda: exchange.is_blocked)
            assert memory.held > decoded_size(body, Punctuation(body)) + 400 * 4
            exchange.disconnect()
        await free(app)

    async def test_a_computed_answer_is_sent_and_the_next_request_refused(
        self, start_app, engine, free
    ):
        app = await start_app(engine)
        memory = app.litestar.state.serving.admission.memory
        slow = chat()
        slow.block()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slow.run, app)
            await engine.admit(1)
            memory.limit = memory.held
            await engine.say(last(engine.added[0].request_id, "x"))
            await until(lambda: slow.is_blocked)
            assert memory.held > memory.limit
            refused = await ask(app, "POST", COMPLETIONS, {"prompt": "x"})
            assert refused.status == 429
            slow.unblock()
            await slow.done()
        assert slow.status == 200
        assert len(engine.added) == 1
        await free(app)

    async def test_tokens_that_do_not_fit_now(self, start_app, engine, free):
        app = await start_app(engine, max_queued_prompt_tokens=100)
        first = Exchange(
            "POST", COMPLETIONS, chunks=[msgspec.json.encode({"prompt": [5] * 60})], headers=JSON
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.run, app)
            await engine.admit(1)
            refused = await ask(app, "POST", COMPLETIONS, {"prompt": [5] * 60})
            assert refused.status == 429
            assert "retry-after" in refused.headers
            first.disconnect()
        await free(app)

    @pytest.mark.parametrize(
        ("path", "body", "param"),
        [
            (CHAT, {"messages": [{"role": "user", "content": "ab " * 10**5}]}, "messages"),
            (COMPLETIONS, {"prompt": "ab " * 10**5}, "prompt"),
            (COMPLETIONS, {"prompt": ["x", "ab " * 10**5]}, "prompt"),
            ("/generate", {"prompt": "ab " * 10**5}, "prompt"),
        ],
    )
    async def test_a_prompt_of_too_many_bytes_is_not_tokenized(
        self, start_app, monkeypatch, path, body, param
    ):
        app = await start_app()
        encode = Tokenizer.encode

        def short_only(self, text, **options):
            assert len(text) < 1000
            return encode(self, text, **options)

        monkeypatch.setattr(Tokenizer, "encode", short_only)
        exchange = await ask(app, "POST", path, body)
        assert exchange.status == 400
        error = exchange.json["error"]
        assert (error["code"], error["param"]) == ("context_length_exceeded", param)
        assert "512 tokens" in error["message"]

    async def test_a_long_prompt_that_is_to_be_cut_is_tokenized(self, start_app):
        app = await start_app()
        body = {"prompt": "ab " * 10**4, "truncate_prompt_tokens": 5}
        assert (await ask(app, "POST", COMPLETIONS, body)).status == 200


class Held:
    """Replaces ``translate_chat``: stops in the worker until the test lets it go on."""

    def __init__(self):
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.num_begun = 0
        self.num_finished = 0

    def __call__(self, request, model):
        self.num_begun += 1
        self.begun.set()
        assert self.gate.wait(10)
        checkpoint()
        job = translate_chat(request, model)
        self.num_finished += 1
        return job


class TestDisconnect:
    @pytest.fixture
    def translate(self, monkeypatch):
        translate = Held()
        monkeypatch.setattr("server.apis.openai.routes.translate_chat", translate)
        yield translate
        translate.gate.set()

    async def test_in_a_worker_and_in_front_of_it(self, start_app, engine, translate, free):
        app = await start_app(engine, tokenizer_workers=1)
        running, waiting = chat(), chat()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.run, app)
            await until(translate.begun.is_set)
            tasks.start_soon(waiting.run, app)
            await until(lambda: held(app)["waiting"] == 1)
            running.disconnect()
            waiting.disconnect()
            await running.done()
            await waiting.done()
        assert running.failure is waiting.failure is None
        assert running.messages == waiting.messages == []
        now = held(app)
        assert (now["tickets"], now["choices"], now["waiting"]) == (0, 0, 0)
        assert (now["running"], now["abandoned"]) == (1, 1)
        translate.gate.set()
        await free(app)
        assert (translate.num_begun, translate.num_finished) == (1, 0)
        assert engine.added == []

    @pytest.mark.parametrize("phase", ["upload", "queue", "decode", "blocked"])
    @pytest.mark.parametrize("stream", [False, True])
    async def test_elsewhere(self, start_app, engine, free, phase, stream):
        app = await start_app(engine)
        exchange = chat(stream=stream, n=2)
        if phase == "upload":
            exchange.hold_end()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.run, app)
            if phase == "upload":
                await settle()
            else:
                await engine.admit(2)
                first, second = (r.request_id for r in engine.added)
            if phase in {"decode", "blocked"}:
                await engine.say(out(first, "x"))
            if phase == "blocked":
                exchange.block()
                await engine.say(last(first, "y"), last(second, "z"))
                assert exchange.is_blocked
            exchange.disconnect()
            await exchange.done()
        assert exchange.failure is None
        await free(app)
        assert not app.bridge._routes
        if phase in {"queue", "decode"}:
            engine.step_with()
            await engine.until(lambda e: not e.live)

    async def test_a_small_chat_passes_large_prompts(self, start_app, translate, free):
        app = await start_app(AnsweringEngine(words("ok")))
        large = [chat(size=100_000) for _ in range(4)]
        small = chat()
        async with anyio.create_task_group() as tasks:
            for exchange in large:
                tasks.start_soon(exchange.run, app)
            await until(translate.begun.is_set)
            await until(lambda: held(app)["waiting"] == 3)  # one worker serves large requests
            tasks.start_soon(small.run, app)
            await until(lambda: translate.num_begun == 2)
            for exchange in large:
                exchange.disconnect()
            await until(lambda: held(app)["abandoned"] == 1)
            translate.gate.set()
            await small.done()
        assert small.status == 200
        await free(app)
        assert translate.num_finished == 1


async def test_the_priority_of_a_request_is_that_of_its_turn_in_the_lane(start_app):
    app = await start_app()
    lane = app.litestar.state.serving.pools.small
    turns, run = [], lane.run

    async def noted_run(turn, *args):
        turns.append((turn.tenant, turn.priority))
        return await run(turn, *args)

    lane.run = noted_run
    for fields in ({"priority": -7}, {"priority": None}, {}):
        await ask(app, "POST", CHAT, {"messages": USER, "max_tokens": 1, **fields})
    assert turns == [("127.0.0.1", -7), ("127.0.0.1", 0), ("127.0.0.1", 0)]
