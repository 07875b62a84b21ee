import contextlib
import gc
import random
import time

import anyio
import msgspec
import pytest

from core.assembly.load import load
from core.contract.config import EngineConfig, ModelConfig
from core.contract.info import EngineInfo
from core.contract.messages import TokenLogprob, merge
from core.engine.thread import Ready
from core.text.output import OutputText
from core.text.tokenizer import Tokenizer
from schemas.chat_chunk import ChatCompletionChunk
from schemas.completions import Completion
from server.app.app import create_app
from server.app.edge import with_edge
from server.bridge.bridge import BridgeState, EngineBridge
from server.rendering import sse
from server.rendering.base import AnswerHead, Envelope
from server.settings.settings import Settings
from server.workers.pools import is_abandoned
from tests.support.engines import (
    DEADLINE,
    AnsweringEngine,
    GatedEngine,
    loaded,
    out,
    request,
    words,
)
from tests.support.tokenizers import byte_level


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def soon():
    """A context manager that fails after DEADLINE seconds."""
    return lambda: anyio.fail_after(DEADLINE)


@pytest.fixture
async def serve_folder(soon):
    """Start applications of the checkpoint in a folder, on the CPU.

    ``model`` are further fields of ModelConfig.
    """
    async with contextlib.AsyncExitStack() as stack:

        async def serve(folder, *, model=None, **settings):
            ready = anyio.Event()
            chosen = Settings(served_model_names=("m",), **settings)
            config = ModelConfig(model=str(folder), device="cpu", **(model or {}))
            app = create_app(
                chosen,
                load=lambda: load(config, EngineConfig()),
                on_event=lambda _event: ready.set(),
            )
            await stack.enter_async_context(app.lifespan())
            with soon():
                await ready.wait()
            return with_edge(app)

        yield serve


@pytest.fixture
async def engine():
    engine = GatedEngine()
    yield engine
    engine.free()


@pytest.fixture
async def start_bridge(soon):
    """Start bridges, wait until they are ready, and stop their threads at the end."""
    bridges = []

    async def start(engine):
        ready = anyio.Event()
        bridge = EngineBridge(
            lambda: engine,
            on_event=lambda event: ready.set() if isinstance(event, Ready) else None,
        )
        bridges.append((bridge, engine))
        bridge.start()
        with soon():
            await ready.wait()
        assert bridge.state is BridgeState.READY
        return bridge

    yield start
    for bridge, engine in bridges:
        if isinstance(engine, GatedEngine):
            engine.free()
        assert bridge.close()
    gc.collect()  # an unclosed stream would warn here


@pytest.fixture
async def bridge(start_bridge, engine):
    return await start_bridge(engine)


@pytest.fixture
async def start_app(soon):
    """Start applications. The default engine generates ``Hi there!`` in two tokens."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(
            engine=None, *, tokenizer=None, info=None, clock=time.perf_counter, **settings
        ):
            ready = anyio.Event()
            engine = engine or AnsweringEngine(words("Hi", " there!"))
            chosen = Settings(**settings)
            app = create_app(
                chosen,
                load=lambda: loaded(engine, tokenizer, **(info or {})),
                on_event=lambda _event: ready.set(),
            )
            await stack.enter_async_context(app.lifespan())
            if isinstance(engine, GatedEngine):
                stack.callback(engine.free)
            with soon():
                await ready.wait()
            wrapped = with_edge(app, clock=clock)
            wrapped.litestar, wrapped.bridge = app, app.state.serving.bridge
            return wrapped

        yield start
    gc.collect()


@pytest.fixture(scope="session")
def tokenizer():
    return Tokenizer(byte_level())


@pytest.fixture
def info():
    def make(**facts):
        defaults = {
            "max_model_len": 100,
            "max_num_seqs": 8,
            "vocab_size": 400,
            "num_token_ids": 400,
            "num_kv_tokens": 1000,
            "dtype": "float32",
            "device": "cpu",
        }
        return EngineInfo(**(defaults | facts))

    return make


@pytest.fixture
def leave():
    """Let the client leave when a condition is true."""
    tokens = []
    yield lambda condition: tokens.append(is_abandoned.set(condition))
    for token in tokens:
        is_abandoned.reset(token)


TEXT = "Hé, the quick 🙂\u2028 fox!"


@pytest.fixture
def head():
    return AnswerHead(id="id-1", created=1700000000, model="org/m", system_fingerprint="fp_1")


@pytest.fixture
def envelope(head, tokenizer):
    """Make an envelope; also return the options in ``wanted`` that it does not have."""

    def envelope(requests, *, num_choices, **wanted):
        own = {name: wanted.pop(name) for name in Envelope.__slots__ if name in wanted}
        prompts = [request.prompt_token_ids for request in requests[::num_choices]]
        made = Envelope(
            head=head, tokenizer=tokenizer, prompts=prompts, num_choices=num_choices, **own
        )
        return made, wanted

    return envelope


@pytest.fixture
def generate(tokenizer):
    """The engine's outputs for a text, one per token; some have no text."""

    def generate(
        request_id="r",
        text=TEXT,
        *,
        logprobs=True,
        prompt=(),
        finish_reason="stop",
        stop=None,
        thinking=None,
    ):
        output_text = OutputText(tokenizer.detokenizer(()), thinking=thinking)
        ids = tokenizer.encode(text, add_special_tokens=False)
        outputs = []
        for number, token_id in enumerate(ids):
            top = ((token_id, -0.5), (1 + number, -1.5), (0, -3.0))
            output_text.feed(token_id, TokenLogprob(token_id, -0.5, top) if logprobs else None)
            is_last = number == len(ids) - 1
            if is_last:
                output_text.finish()
            shown, thinking, entries = output_text.take()
            outputs.append(
                out(
                    request_id,
                    shown,
                    thinking=thinking,
                    token_ids=(token_id,),
                    logprobs=entries,
                    prompt_logprobs=tuple(prompt) if number == 0 and prompt else None,
                    num_prompt_tokens=5,
                    num_cached_tokens=2,
                    num_output_tokens=number + 1,
                    num_thinking_tokens=output_text.num_thinking_tokens,
                    finish_reason=finish_reason if is_last else None,
                    stop_reason=stop if is_last else None,
                )
            )
        assert text.isascii() or any(not output.text for output in outputs)
        return outputs

    return generate


@pytest.fixture(params=range(10))
def rng(request):
    return random.Random(request.param)


@pytest.fixture
def split(rng):
    """Merge adjacent outputs at random, as for a slow reader."""

    def split(outputs):
        pieces = [outputs[0]]
        for output in outputs[1:]:
            if rng.random() < 0.5:
                pieces[-1] = merge(pieces[-1], output)
            else:
                pieces.append(output)
        return pieces

    return split


@pytest.fixture
def stream(rng):
    """Render the choices' outputs, interleaved at random, and return the chunks."""

    def stream(renderer, choices):
        data = renderer.begin()
        pending = {index: list(outputs) for index, outputs in enumerate(choices)}
        while pending:
            index = rng.choice(list(pending))
            data += renderer.feed(index, pending[index].pop(0))
            if not pending[index]:
                del pending[index]
        data += renderer.end()
        return chunks_of(data)

    return stream


@pytest.fixture
def whole_of():
    """All outputs of a choice merged into one."""

    def whole_of(outputs):
        result = outputs[0]
        for output in outputs[1:]:
            result = merge(result, output)
        return result

    return whole_of


@pytest.fixture
def asked():
    """The engine requests behind n choices for each prompt."""

    def asked(prompts=((1, 2, 3, 4, 5),), n=1):
        return [
            request(f"id-{p * n + j}", prompt=prompt)
            for p, prompt in enumerate(prompts)
            for j in range(n)
        ]

    return asked


KINDS = {"chat.completion.chunk": ChatCompletionChunk, "text_completion": Completion}


def chunks_of(data):
    """The chunks of a stream, checked against the schema."""
    *events, done, nothing = data.split(b"\n\n")
    assert (done, nothing) == (b"data: [DONE]", b"")
    assert all(event.startswith(b"data: ") for event in events)
    chunks = [msgspec.json.decode(event[6:]) for event in events]
    for event, chunk in zip(events, chunks, strict=True):
        typed = msgspec.json.decode(event[6:], type=KINDS[chunk["object"]])
        assert sse.frame(typed) == event + b"\n\n"  # also if a template made it
    return chunks
