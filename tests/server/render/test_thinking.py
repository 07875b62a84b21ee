import pytest

from core.contract.params import Thinking
from core.text.tokenizer import Tokenizer
from server.render.thinking import ThinkingCounter
from server.render.usage import UsageCounter
from tests.support.engines import out
from tests.support.tokenizers import byte_fallback, byte_level

THOUGHT = "I should, well."


@pytest.fixture(params=[byte_level, byte_fallback], ids=["byte level", "byte fallback"])
def tokenizer(request):
    return Tokenizer(request.param())


@pytest.fixture
def encode(tokenizer):
    return lambda text: tokenizer.encode(text, add_special_tokens=False)


@pytest.fixture
def counter(tokenizer, encode):
    def counter(*, is_open=False):
        thinking = Thinking(
            begin="<think>",
            end="</think>",
            end_token_ids=tuple(encode("</think>")),
            is_open=is_open,
        )
        return ThinkingCounter(thinking, tokenizer.token_bytes)

    return counter


def counts(counter, ids):
    """The count after each token."""
    seen = []
    for token_id in ids:
        counter.feed(out(token_ids=(token_id,)))
        seen.append(counter.count)
    return seen


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("answer", ["", "\n\nHello!", "x</think>y", "<think>x</think>"])
def test_thinking_and_its_tags(counter, encode, is_open, answer):
    before = [] if is_open else encode("<think>")
    thought, ended, after = encode(THOUGHT), encode("\n</think>"), encode(answer)
    seen = counts(counter(is_open=is_open), [*before, *thought, *ended, *after])
    total = len(before) + len(thought) + len(ended)
    assert seen[-1] == total
    assert seen[total - 1] == total
    assert set(seen[total:]) <= {total}


def test_it_counts_as_it_comes(counter, encode):
    ids = encode(THOUGHT)
    assert counts(counter(is_open=True), ids) == list(range(1, len(ids) + 1))


@pytest.mark.parametrize("text", ["Hello! <think>x</think>", "<thing>", "", "  Hi", "<thin"])
def test_no_thinking(counter, encode, text):
    assert set(counts(counter(), encode(text))) <= {0}


def test_blanks_before_it(counter, encode):
    ids = encode("\n <think>x")
    assert counts(counter(), ids)[-1] == len(ids)


def test_tags_in_whatever_tokens(counter, tokenizer):
    """Each byte by itself: not the tokens that the tag has alone."""
    by_bytes = {tokenizer.token_bytes(i): i for i in reversed(range(len(tokenizer)))}
    pieces = [by_bytes[c.encode()] for c in f"<think>{THOUGHT}.</think>"]
    seen = counts(counter(), [*pieces, by_bytes[b"H"]])
    assert seen[-1] == len(pieces)


def test_all_at_once_or_one_by_one(counter, encode):
    ids = encode(f"<think>{THOUGHT}</think>Hello")
    whole = counter()
    whole.feed(out(token_ids=tuple(ids)))
    whole.feed(out())
    assert whole.count == counts(counter(), ids)[-1]


def test_a_tag_that_does_not_end(counter, encode):
    ids = encode("x</thin></think")
    assert counts(counter(is_open=True), ids)[-1] == len(ids)


def test_usage_adds_up_the_choices(counter, encode):
    usage = UsageCounter(2, 5, lambda: counter(is_open=True))
    ids = encode(f"{THOUGHT}</think>Hello")
    thought = counts(counter(is_open=True), ids)[-1]
    for index, given in enumerate([ids, ids[:3]]):
        usage.count(index, out(token_ids=tuple(given), num_output_tokens=len(given)))
    details = usage.usage().completion_tokens_details
    assert details.reasoning_tokens == thought + 3
    assert usage.usage().completion_tokens == len(ids) + 3
