import threading
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest

from core.contract.errors import GenerationFailed
from core.text.tokenizer import Tokenizer
from server.apis.openai.chat import ChatRenderer
from server.apis.openai.completions import TextRenderer
from server.bridge.stream import BUFFERED_OUTPUTS
from server.generation.answer import HEAVY, WRITE_SIZE, StreamAnswer, WholeAnswer
from server.rendering import sse
from server.rendering.base import AnswerHead, ChatOptions, Envelope
from tests.support.asgi import Exchange, watched
from tests.support.engines import DEADLINE, last, out, request, settle
from tests.support.engines import request as make_request
from tests.support.tokenizers import byte_level

pytestmark = pytest.mark.anyio

TINY = 1e-3


class LineRenderer:
    """A minimal format that shows where each output went."""

    media_type = sse.MEDIA_TYPE
    keep_alive = sse.COMMENT

    def weight(self, _index, output):
        return len(output.text)

    def begin(self):
        return b"<"

    def feed(self, index, output):
        is_bare_error = output.error is not None and not output.text
        return b"" if is_bare_error else f"{index}{output.text};".encode()

    def end(self):
        return b">"

    def error(self, message, _cause=None):
        return f"!{message}".encode()

    def whole(self, outputs):
        return msgspec.json.encode([output.text for output in outputs])


class HeavyRenderer(LineRenderer):
    """Every output is heavy. Rendering waits until the event loop has run."""

    def __init__(self):
        self.threads = set()
        self.loop_ran = threading.Event()

    def weight(self, _index, _output):
        return HEAVY + 1

    def feed(self, index, output):
        self._wait()
        return super().feed(index, output)

    def whole(self, outputs):
        self._wait()
        return super().whole(outputs)

    def _wait(self):
        assert self.loop_ran.wait(DEADLINE)
        self.threads.add(threading.current_thread())


@pytest.fixture(params=["sends", "writes"])
def respond(bridge, engine, request):
    """Send a response to a client, then check that nothing of the request is left.

    Outputs of a stream are sent by its task, or written where they are delivered.
    """
    has_writer = request.param == "writes"

    @asynccontextmanager
    async def respond(make, *requests, **options):
        requests = requests or (make_request(),)
        exchange = Exchange()
        if has_writer:
            exchange.give_writer()
        stream = bridge.open(requests)
        answer = make(stream, options.pop("renderer", LineRenderer()), **options)
        app = watched(answer.to_asgi_response())
        async with anyio.create_task_group() as tasks:
            await engine.admit(len(requests))
            tasks.start_soon(exchange.run, app)
            await settle()
            yield exchange
            await exchange.done()
        assert not bridge._routes
        assert not bridge._streams
        if engine.live:  # the running step delays the abort
            engine.step_with()
            await engine.until(lambda e: not e.live)

    return respond


@pytest.fixture
def say(engine):
    return engine.say


def chat_renderer(*requests, **wanted):
    tokenizer = Tokenizer(byte_level())
    head = AnswerHead(id="chatcmpl-1", created=1700000000, model="m", system_fingerprint="fp_1")
    envelope = Envelope(
        head=head,
        tokenizer=tokenizer,
        prompts=[requests[0].prompt_token_ids],
        num_choices=len(requests),
        **wanted,
    )
    return ChatRenderer(envelope, ChatOptions())


class TestWhole:
    async def test_is_sent_when_every_choice_has_finished(self, respond, say):
        async with respond(WholeAnswer, request("a"), request("b")) as exchange:
            await say(out("a", "A"), last("b", "B"))
            assert exchange.messages == []
            await say(last("a", "a"))
        assert exchange.failure is None
        assert exchange.messages == [
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"application/json"), (b"content-length", b"10")],
            },
            {"type": "http.response.body", "body": b'["Aa","B"]', "more_body": False},
        ]

    @pytest.mark.parametrize("text_before", ["", "some text"])
    async def test_an_error_is_raised_before_any_byte(self, respond, say, engine, text_before):
        async with respond(WholeAnswer, request("a"), request("b")) as exchange:
            if text_before:
                await say(out("a", text_before))
            await say(out("a", error="The engine failed."))
        assert isinstance(exchange.failure, GenerationFailed)
        assert str(exchange.failure) == "The engine failed."
        assert exchange.messages == []
        assert engine.aborted == ["b"]  # the other choice is useless now

    async def test_a_disconnect_aborts_the_requests(self, respond, say, engine):
        async with respond(WholeAnswer) as exchange:
            await say(out(text="x"))
            exchange.disconnect()
        assert exchange.failure is None
        assert exchange.messages == []
        assert engine.aborted == ["r"]

    async def test_a_client_that_disconnected_before_the_response_was_sent(self, bridge, engine):
        exchange = Exchange()
        exchange.disconnect()
        answer = WholeAnswer(bridge.open([request()]), LineRenderer())
        await exchange.run(watched(answer.to_asgi_response()))
        assert exchange.failure is None
        assert not bridge._routes

    async def test_the_server_cancels_a_blocked_send(self, respond, say, bridge):
        async with respond(WholeAnswer) as exchange:
            exchange.block()
            await say(last(text="x"))
            assert exchange.is_blocked
            bridge.cancel_all()
        assert exchange.failure is None
        assert exchange.messages == []


class BreakingRenderer(LineRenderer):
    """Fails on a text."""

    def feed(self, index, output):
        if output.text == "bad":
            raise RuntimeError("secret")
        return super().feed(index, output)


class TestStream:
    async def test_a_renderer_that_fails_in_mid_stream_ends_with_an_error(self, respond, say):
        async with respond(StreamAnswer, renderer=BreakingRenderer()) as exchange:
            await say(out(text="good"))
            await say(out(text="bad"))
        assert exchange.failure is None
        assert exchange.body == b"<0good;!The server failed on this request."

    @pytest.mark.parametrize("has_output", [False, True])
    async def test_a_heavy_beginning_is_made_in_a_thread(self, bridge, engine, has_output):
        class Beginning(LineRenderer):
            def weight(self, _index, _output):
                return HEAVY + 1

            def begin(self):
                threads.add(threading.current_thread())
                return super().begin()

        threads = set()
        stream = bridge.open([request()])
        await engine.admit(1)
        if has_output:
            await engine.say(last(text="x"))
        answer = StreamAnswer(stream, Beginning(), keep_alive_interval=TINY)
        exchange = Exchange(chunks=())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.run, answer.to_asgi_response())
            if not has_output:  # the first write is to keep the client waiting
                await exchange.until(lambda e: e.writes)
                await engine.say(last(text="x"))
            await exchange.done()
        assert exchange.body.startswith(b"<")
        assert exchange.body.endswith(b"0x;>")
        assert len(threads) == 1
        assert threading.current_thread() not in threads

    async def test_a_renderer_that_fails_at_once_sets_the_status(self, respond, say):
        async with respond(StreamAnswer, renderer=BreakingRenderer()) as exchange:
            await say(out(text="bad"))
        assert isinstance(exchange.failure, RuntimeError)
        assert exchange.messages == []

    @pytest.mark.parametrize("respond", ["writes"], indirect=True)
    async def test_an_output_is_written_where_it_is_delivered(self, respond, bridge, say):
        async with respond(StreamAnswer, request("a"), request("b")) as exchange:
            bridge._deliver([out("a", "x")])
            assert exchange.messages == []  # the task sends the status with the first output
            await settle()
            bridge._deliver([out("a", "y"), out("b", "z")])
            assert exchange.writes == [b"<0x;", b"0y;1z;"]  # without a turn of the loop
            await say(last("a", "1"))
            assert exchange.num_direct_writes == 2
            await say(last("b", "2"))
            assert exchange.num_direct_writes == 2  # the task ends the body
        assert exchange.body == b"<0x;0y;1z;01;12;>"

    @pytest.mark.parametrize("respond", ["writes"], indirect=True)
    async def test_a_client_that_does_not_read_gets_everything_in_order(self, respond, bridge, say):
        async with respond(StreamAnswer) as exchange:
            bridge._deliver([out(text="x")])
            await settle()
            exchange.block()
            for text in "abc":
                bridge._deliver([out(text=text)])
            assert exchange.writes == [b"<0x;"]
            await settle()
            exchange.unblock()
            await settle()
            bridge._deliver([out(text="d")])
            assert exchange.writes[-1] == b"0d;"
            await say(last(text="!"))
        assert exchange.body == b"<0x;0a;0b;0c;0d;0!;>"

    async def test_the_first_output_is_sent_at_once(self, respond, say):
        async with respond(StreamAnswer) as exchange:
            assert exchange.messages == []  # a failure could still set the status
            await say(out(text="x"))
            assert exchange.writes == [b"<0x;"]
            await say(out(text="y"))
            assert exchange.writes == [b"<0x;", b"0y;"]
            assert not exchange.has_ended
            await say(last(text="z"))
        assert exchange.failure is None
        assert exchange.messages[0] == {
            "type": "http.response.start",
            "status": 200,
            "headers": [
                (b"content-type", b"text/event-stream"),
                (b"cache-control", b"no-cache"),
                (b"x-accel-buffering", b"no"),
            ],
        }

    async def test_chat_bytes_exactly(self, respond, say):
        requests = [request("a"), request("b")]
        renderer = chat_renderer(*requests, include_usage=True)
        async with respond(StreamAnswer, *requests, renderer=renderer) as exchange:
            counts = {"num_prompt_tokens": 3, "num_cached_tokens": 2}
            await say(out("a", "Hé", num_output_tokens=1, **counts))
            await say(last("b", "\u2028", num_output_tokens=1, **counts))
            await say(last("a", num_output_tokens=2, **counts))
        head = (
            b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,'
            b'"model":"m","system_fingerprint":"fp_1","choices":['
        )
        choice = b'{"index":%d,"delta":%s,"logprobs":null,"finish_reason":%s}'
        chunk = head + choice + b'],"usage":null}\n\n'
        role = b'{"role":"assistant","content":"","refusal":null}'
        assert exchange.writes == [
            chunk % (0, role, b"null")
            + chunk % (1, role, b"null")
            + chunk % (0, '{"content":"Hé"}'.encode(), b"null"),
            chunk % (1, b'{"content":"\\u2028"}', b"null") + chunk % (1, b"{}", b'"stop"'),
            chunk % (0, b"{}", b'"stop"')
            + head
            + b'],"usage":{"prompt_tokens":3,"completion_tokens":3,"total_tokens":6,'
            b'"prompt_tokens_details":{"cached_tokens":2},'
            b'"completion_tokens_details":{"reasoning_tokens":0}}}\n\ndata: [DONE]\n\n',
        ]
        assert exchange.has_ended

    async def test_the_last_write_ends_the_body(self, respond, say):
        async with respond(StreamAnswer) as exchange:
            await say(out(text="x"))
            await say(last(text="y"))
        assert exchange.messages[-1] == {
            "type": "http.response.body",
            "body": b"0y;>",
            "more_body": False,
        }

    async def test_one_output_is_one_write(self, respond, say):
        async with respond(StreamAnswer) as exchange:
            await say(last(text="x"))
        assert exchange.writes == [b"<0x;>"]
        assert exchange.has_ended

    async def test_pending_outputs_are_one_write(self, respond, say):
        async with respond(StreamAnswer) as exchange:
            await say(out(text="1"))
            exchange.block()
            for text in "2345":
                await say(out(text=text))
            await say(last(text="6"))
            assert exchange.is_blocked
            exchange.unblock()
        assert exchange.writes == [b"<01;", b"02;", b"03;04;05;06;>"]

    async def test_outputs_before_the_first_write_are_one_write(self, bridge, engine):
        stream = bridge.open([request()])
        await engine.admit(1)
        await engine.say(out(text="1"))
        await engine.say(out(text="2"))
        await engine.say(last(text="3"))
        exchange = Exchange(chunks=())
        await exchange.run(StreamAnswer(stream, LineRenderer()).to_asgi_response())
        assert exchange.writes == [b"<01;02;03;>"]
        assert exchange.has_ended

    async def test_outputs_for_a_slow_reader_are_merged(self, respond, engine):
        n = 3 * BUFFERED_OUTPUTS
        async with respond(StreamAnswer) as exchange:
            exchange.block()
            for i in range(n):
                engine.step_with(out(text=f"{i} "))
            engine.step_with(last())
            await engine.until(lambda e: not e.live)
            exchange.unblock()
        text = exchange.body.replace(b";0", b"").removeprefix(b"<0").removesuffix(b";>")
        assert text == "".join(f"{i} " for i in range(n)).encode()
        assert len(exchange.writes) < 5

    async def test_an_error_before_the_first_output_is_raised(self, respond, say):
        async with respond(StreamAnswer, request("a"), request("b")) as exchange:
            await say(out("b", error="no"))
        assert isinstance(exchange.failure, GenerationFailed)
        assert exchange.messages == []

    async def test_an_error_in_mid_stream_is_an_event_without_a_finish_reason(self, respond, say):
        requests = [request("a"), request("b")]
        renderer = chat_renderer(*requests, include_usage=True)
        async with respond(StreamAnswer, *requests, renderer=renderer) as exchange:
            await say(out("a", "text"))
            await say(out("a", error="The engine failed."))
        assert exchange.failure is None
        assert exchange.writes[-1] == (
            b'data: {"error":{"message":"The engine failed.","type":"server_error",'
            b'"param":null,"code":null}}\n\ndata: [DONE]\n\n'
        )
        assert exchange.has_ended
        assert exchange.body.count(b'"finish_reason":null') == exchange.body.count(b"finish_reason")
        assert exchange.body.count(b"[DONE]") == 1

    async def test_nothing_follows_an_error(self, respond, say):
        async with respond(StreamAnswer, request("a"), request("b")) as exchange:
            await say(out("a", "x"))
            exchange.block()
            await say(out("a", "y"))
            await say(out("a", error="no"), last("b", "never"))
            exchange.unblock()
        assert exchange.writes == [b"<0x;", b"0y;", b"!no"]
        assert exchange.has_ended

    async def test_text_pending_with_an_error_is_sent(self, respond, say):
        async with respond(StreamAnswer) as exchange:
            await say(out(text="x"))
            exchange.block()
            for i in range(BUFFERED_OUTPUTS + 3):  # the last ones are merged
                await say(out(text=str(i % 10)))
            await say(out(text="end", error="no"))
            exchange.unblock()
        assert exchange.body.endswith(b"end;!no")
        assert exchange.has_ended

    @pytest.mark.parametrize("phase", ["before the first output", "in mid-stream", "blocked"])
    async def test_a_disconnect_aborts_the_request(self, phase, respond, say, engine):
        async with respond(StreamAnswer) as exchange:
            if phase != "before the first output":
                await say(out(text="x"))
            if phase == "blocked":
                exchange.block()
                await say(out(text="y"))
                assert exchange.is_blocked
            exchange.disconnect()
        assert exchange.failure is None
        assert not exchange.has_ended
        assert engine.aborted == ["r"]

    async def test_a_disconnect_during_the_last_write(self, respond, say, engine):
        async with respond(StreamAnswer) as exchange:
            await say(out(text="x"))
            exchange.block()
            await say(last(text="y"))
            exchange.disconnect()
        assert exchange.failure is None
        assert engine.aborted == []

    async def test_the_server_cancels_a_blocked_send(self, respond, say, bridge, engine):
        async with respond(StreamAnswer) as exchange:
            exchange.block()
            await say(out(text="x"))
            assert exchange.is_blocked
            bridge.cancel_all()
        assert exchange.failure is None
        assert not exchange.has_ended
        assert engine.aborted == ["r"]

    async def test_an_exception_of_the_renderer_is_raised_as_itself(self, respond, say, engine):
        class BrokenRenderer(LineRenderer):
            def feed(self, index, output):
                raise ZeroDivisionError

        async with respond(StreamAnswer, renderer=BrokenRenderer()) as exchange:
            await say(out(text="x"))
        assert isinstance(exchange.failure, ZeroDivisionError)
        assert engine.aborted == ["r"]


class TestHeavyOutputs:
    @pytest.mark.parametrize("make", [WholeAnswer, StreamAnswer])
    async def test_the_event_loop_runs_while_they_are_rendered(self, respond, say, make):
        renderer = HeavyRenderer()
        async with respond(make, renderer=renderer) as exchange:
            await say(out(text="x"))
            await say(last(text="y"))
            renderer.loop_ran.set()
        assert exchange.body == (b'["xy"]' if make is WholeAnswer else b"<0x;0y;>")
        assert renderer.threads
        assert threading.current_thread() not in renderer.threads

    @pytest.mark.parametrize("make", [WholeAnswer, StreamAnswer])
    async def test_a_client_may_leave_meanwhile(self, respond, say, make, engine):
        renderer = HeavyRenderer()
        async with respond(make, request("a"), request("b"), renderer=renderer) as exchange:
            await say(last("a", "x"))
            exchange.disconnect()
            await exchange.done()
            renderer.loop_ran.set()
        assert exchange.failure is None
        assert engine.aborted == ["b"]

    async def test_an_error_while_they_are_rendered_is_raised(self, respond, say):
        renderer = HeavyRenderer()
        renderer.whole = lambda _outputs: 1 / 0
        async with respond(WholeAnswer, renderer=renderer) as exchange:
            await say(last(text="x"))
        assert isinstance(exchange.failure, ZeroDivisionError)

    @pytest.mark.parametrize("make", [WholeAnswer, StreamAnswer])
    async def test_long_bodies_are_sent_in_pieces(self, respond, say, make):
        text = "x" * (3 * WRITE_SIZE)
        async with respond(make) as exchange:
            await say(last(text=text))
        expected = f'["{text}"]' if make is WholeAnswer else f"<0{text};>"
        assert exchange.body == expected.encode()
        assert [len(piece) for piece in exchange.writes[:3]] == [WRITE_SIZE] * 3
        assert len(exchange.writes) == 4
        assert exchange.has_ended


class TestKeepAlive:
    async def test_comments_before_the_first_output(self, respond, say):
        async with respond(StreamAnswer, keep_alive_interval=TINY) as exchange:
            await exchange.until(lambda e: len(e.writes) >= 3)
            await say(last(text="x"))
        assert exchange.writes[0] == b"<" + sse.COMMENT
        assert set(exchange.writes[1:-1]) == {sse.COMMENT}
        assert exchange.writes[-1] == b"0x;>"

    async def test_comments_in_mid_stream(self, respond, say):
        async with respond(StreamAnswer, keep_alive_interval=0.02) as exchange:
            await say(out(text="x"))
            num_writes = len(exchange.writes)
            await exchange.until(lambda e: len(e.writes) >= num_writes + 2)
            assert set(exchange.writes[num_writes:]) == {sse.COMMENT}
            await say(last(text="y"))
        assert exchange.body.replace(sse.COMMENT, b"") == b"<0x;0y;>"
        assert exchange.writes[-1] == b"0y;>"

    async def test_an_output_waits_for_a_blocked_comment(self, respond, say):
        """Two concurrent sends could put the comment after the end."""
        async with respond(StreamAnswer, keep_alive_interval=0.02) as exchange:
            await say(out(text="x"))
            exchange.block()
            await exchange.until(lambda e: e.is_blocked)
            await say(last(text="y"))
            exchange.unblock()
        assert exchange.failure is None  # the exchange rejects concurrent sends
        assert exchange.writes[-2:] == [sse.COMMENT, b"0y;>"]

    async def test_an_error_after_a_comment_is_an_event(self, respond, say):
        async with respond(StreamAnswer, keep_alive_interval=TINY) as exchange:
            await exchange.until(lambda e: e.writes)
            await say(out(error="no"))
        assert exchange.writes[-1] == b"!no"
        assert exchange.has_ended

    async def test_an_interval_of_zero_sends_no_comments(self, respond, say):
        async with respond(StreamAnswer, keep_alive_interval=0) as exchange:
            await settle()
            assert exchange.messages == []
            await say(last(text="x"))
        assert exchange.writes == [b"<0x;>"]


class TestRawText:
    async def test_bytes(self, respond, say):
        async with respond(StreamAnswer, renderer=TextRenderer("prompt ")) as exchange:
            await say(out(text="é"))
            await say(last(text="!"))
        assert exchange.writes == ["é".encode(), b"!"]
        assert exchange.has_ended
        assert exchange.headers["content-type"] == "text/plain; charset=utf-8"

    async def test_an_error_leaves_the_body_incomplete(self, respond, say):
        async with respond(StreamAnswer, renderer=TextRenderer("p")) as exchange:
            await say(out(text="x"))
            await say(out(error="no"))
        assert exchange.failure is None
        assert exchange.writes == [b"x"]
        assert not exchange.has_ended  # so clients see that the text is incomplete

    async def test_an_error_before_any_text_is_raised(self, respond, say):
        async with respond(StreamAnswer, renderer=TextRenderer("p")) as exchange:
            await say(out(error="no"))
        assert isinstance(exchange.failure, GenerationFailed)
        assert exchange.messages == []

    async def test_a_first_token_without_text_sends_nothing(self, respond, say):
        async with respond(StreamAnswer, renderer=TextRenderer("p")) as exchange:
            await say(out())
            assert exchange.writes == []
            await say(last())
        assert exchange.writes == [b""]
        assert exchange.has_ended
