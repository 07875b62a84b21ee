import random

import msgspec
import pytest

from core.contract.messages import TokenLogprob, merge
from core.text.output import OutputText
from core.text.tokenizer import Tokenizer
from schemas.chat_chunk import ChatCompletionChunk
from schemas.completions import Completion
from server import sse
from server.render.base import Head
from server.render.envelope import Envelope
from tests.support.engines import out, request
from tests.support.tokenizers import byte_level

TEXT = "Hé, the quick 🙂\u2028 fox!"


@pytest.fixture(scope="session")
def tokenizer():
    return Tokenizer(byte_level())


@pytest.fixture
def head():
    return Head(id="id-1", created=1700000000, model="org/m", system_fingerprint="fp_1")


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
