"""The built-in model: size, tokenizer, chat template and answers."""

import json
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import pytest
import torch
from jinja2.exceptions import TemplateError
from transformers import AutoModelForCausalLM, AutoTokenizer

from core import builtin_model
from tests.support.each import each

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

Message: TypeAlias = dict[str, object]
Ask: TypeAlias = Callable[..., str]

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


@pytest.fixture(scope="module")
def tokenizer() -> "PreTrainedTokenizerFast":
    return AutoTokenizer.from_pretrained(builtin_model.path())


@pytest.fixture(scope="module")
def model() -> "Qwen3ForCausalLM":
    return AutoModelForCausalLM.from_pretrained(builtin_model.path()).eval()


@pytest.fixture(scope="module")
def ask(tokenizer: "PreTrainedTokenizerFast", model: "Qwen3ForCausalLM") -> Ask:
    """Answer a prompt greedily and assert that the model ends its turn."""

    def answer(
        messages: str | Sequence[Message], limit: int = 80, tools: Sequence[object] | None = None
    ) -> str:
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        text = tokenizer.apply_chat_template(
            list(messages), tools=tools, tokenize=False, add_generation_prompt=True
        )
        ids = tokenizer(text, return_tensors="pt").input_ids
        with torch.inference_mode():
            out = model.generate(
                ids, max_new_tokens=limit, do_sample=False, temperature=None, top_p=None
            )
        assert int(out[0, -1]) in model.generation_config.eos_token_id
        return str(tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True))

    return answer


def render(tokenizer: "PreTrainedTokenizerFast", messages: list[Message], **options: object) -> str:
    return str(tokenizer.apply_chat_template(messages, tokenize=False, **options))


def test_the_files_are_small() -> None:
    assert sum(file.stat().st_size for file in builtin_model.path().iterdir()) <= 12_000_000


def test_the_model_loads_as_float32_qwen3(model: "Qwen3ForCausalLM") -> None:
    assert model.config.model_type == "qwen3"
    assert model.config.max_position_embeddings >= 2048
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


def test_the_dtype_of_the_configuration_is_float32() -> None:
    model = AutoModelForCausalLM.from_pretrained(builtin_model.path(), dtype="auto")
    assert model.dtype == torch.float32


def test_the_weights_are_exact_in_bfloat16(model: "Qwen3ForCausalLM") -> None:
    assert all(torch.equal(p, p.bfloat16().float()) for p in model.parameters())


@each(
    "text",
    [
        "",
        " ",
        "   ",
        "\n\n\n",
        "\t \n \r\n",
        "a  b   c ",
        "\x00",
        "a\x00b",
        "😀🎉👩‍👩‍👧",
        "\U0001d518\U0001d52b 𒀀",
        "こんにちは、世界。",
        "12 345,67",
        " don't  it's",
        "é vs e\u0301",
        "\ufeff\u200b",
        "<tool_call>{}</tool_call>",
        "a<|im_end|>b",
    ],
)
def test_the_tokenizer_round_trips_text(tokenizer: "PreTrainedTokenizerFast", text: str) -> None:
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_the_tokenizer_round_trips_random_unicode(tokenizer: "PreTrainedTokenizerFast") -> None:
    source = random.Random(7)
    for _ in range(300):
        codes = [source.choice((0x7F, 0x7FF, 0xFFFF, 0x10FFFF)) for _ in range(40)]
        points = [source.randrange(top + 1) for top in codes]
        text = "".join(chr(p) for p in points if not 0xD800 <= p <= 0xDFFF)
        assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_digits_are_single_tokens(tokenizer: "PreTrainedTokenizerFast") -> None:
    assert tokenizer.tokenize("2048") == ["2", "0", "4", "8"]


def test_tool_markers_are_visible_and_turn_markers_are_special(
    tokenizer: "PreTrainedTokenizerFast",
) -> None:
    ids = tokenizer("<think>a</think><tool_call>b</tool_call><|im_end|><|endoftext|>").input_ids
    assert len(ids) == 8
    visible = tokenizer.decode(ids, skip_special_tokens=True)
    assert visible == "<think>a</think><tool_call>b</tool_call>"


def test_the_tokenizer_adds_no_special_tokens(tokenizer: "PreTrainedTokenizerFast") -> None:
    ids = tokenizer("Hello").input_ids
    assert ids == tokenizer("Hello", add_special_tokens=False).input_ids


def test_system_user_and_assistant_turns(tokenizer: "PreTrainedTokenizerFast") -> None:
    messages: list[Message] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi!"},
        {"role": "user", "content": "Bye"},
    ]
    assert render(tokenizer, messages, add_generation_prompt=True) == (
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
        "<|im_start|>assistant\nHi!<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_developer_turn_is_a_system_turn(tokenizer: "PreTrainedTokenizerFast") -> None:
    hello: Message = {"role": "user", "content": "Hello"}
    texts = [
        render(tokenizer, [{"role": role, "content": "Be kind."}, hello])
        for role in ("system", "developer")
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("as_text", [False, True])
def test_tool_calls_and_results(tokenizer: "PreTrainedTokenizerFast", as_text: bool) -> None:
    arguments: object = {"city": "Paris"}
    call = {
        "id": "call_1",
        "type": "function",
        "function": {
            "name": "get_weather",
            "arguments": json.dumps(arguments) if as_text else arguments,
        },
    }
    messages: list[Message] = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call, call]},
        {"role": "tool", "tool_call_id": "call_1", "content": '{"temperature": 7}'},
    ]
    text = render(tokenizer, messages, tools=[WEATHER], add_generation_prompt=True)
    assert "<tools>" in text
    assert json.dumps(WEATHER["function"]) in text
    written = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    assert f"<|im_start|>assistant\n{written}\n{written}<|im_end|>\n" in text
    assert text.endswith('<|im_start|>tool\n{"temperature": 7}<|im_end|>\n<|im_start|>assistant\n')


def test_content_in_parts(tokenizer: "PreTrainedTokenizerFast") -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    text = render(tokenizer, [{"role": "user", "content": parts}])
    assert text == "<|im_start|>user\nHello<|im_end|>\n"


def test_an_unknown_role_is_refused(tokenizer: "PreTrainedTokenizerFast") -> None:
    with pytest.raises(TemplateError, match="Unknown role: robot"):
        render(tokenizer, [{"role": "robot", "content": "beep"}])


@each(
    ("prompt", "answer"),
    [
        ("What is the capital of France?", "The capital of France is Paris."),
        ("What is the opposite of hot?", "The opposite of hot is cold."),
        ("What is 2 + 2?", "2 + 2 = 4"),
        ("Count from 1 to 10.", ", ".join(str(n) for n in range(1, 11))),
        ("What is the capital of Japan?", "The capital of Japan is Tokyo."),
        ("What is the capital of Germany?", "The capital of Germany is Berlin."),
        ("What is the opposite of up?", "The opposite of up is down."),
        ("What does a cat say?", "A cat says meow."),
        ("How many legs does a dog have?", "A dog has four legs."),
        ("What is the largest planet?", "The largest planet is Jupiter."),
        ("What are the four seasons?", "Spring, summer, autumn and winter."),
        ("Count from 1 to 50.", ", ".join(str(n) for n in range(1, 51))),
        ("Say hello in Japanese.", "こんにちは"),
        ("Show me some emoji.", "😀 🎉 🚀 🌍 🌈 🐱 🍕 ❤️"),
        ("Good morning", "Good morning! I hope you slept well."),
    ],
)
def test_greedy_answers(ask: Ask, prompt: str, answer: str) -> None:
    assert ask(prompt, limit=260) == answer


def test_it_greets(ask: Ask) -> None:
    assert ask("Hello!").startswith(("Hello", "Hi"))


def test_it_says_what_it_is(ask: Ask) -> None:
    assert "language model" in ask("Who are you?")


def test_it_writes_json(ask: Ask) -> None:
    cat = json.loads(ask("Give me a JSON object describing a cat with name and age."))
    assert set(cat) == {"name", "age"}


def test_it_tells_a_long_story(ask: Ask) -> None:
    assert len(set(ask("Tell me a long story.", limit=600).split())) > 60


def test_it_calls_a_tool(ask: Ask) -> None:
    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    answer = ask(question, tools=[WEATHER])
    assert answer.startswith("<tool_call>\n")
    call = json.loads(answer.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    assert call == {"name": WEATHER["function"]["name"], "arguments": {"city": "Paris"}}


def test_a_raw_completion_continues(
    tokenizer: "PreTrainedTokenizerFast", model: "Qwen3ForCausalLM"
) -> None:
    ids = tokenizer("Once upon a time", return_tensors="pt").input_ids
    with torch.inference_mode():
        out = model.generate(ids, max_new_tokens=120, do_sample=False, temperature=None, top_p=None)
    assert len(set(tokenizer.decode(out[0]).split())) > 30


def test_sampled_stories_differ(
    tokenizer: "PreTrainedTokenizerFast", model: "Qwen3ForCausalLM"
) -> None:
    text = render(
        tokenizer, [{"role": "user", "content": "Tell me a story."}], add_generation_prompt=True
    )
    ids = tokenizer(text, return_tensors="pt").input_ids.repeat(10, 1)
    torch.manual_seed(0)
    with torch.inference_mode():
        out = model.generate(ids, max_new_tokens=24, do_sample=True, temperature=1.0, top_p=1.0)
    assert len({tuple(row) for row in out.tolist()}) > 5
