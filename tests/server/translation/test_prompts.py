import msgspec
import pytest

from core.contract.errors import InvalidRequest
from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from schemas.limits import MAX_PROMPTS
from server.generation.model import ServedModel
from server.settings.settings import Settings
from server.translation.prompts import completion_prompts, counted_prompt, truncate
from tests.support.each import each
from tests.support.engines import loaded
from tests.support.tokenizers import byte_fallback, byte_level, metaspace

USER = {"role": "user", "content": "hi"}
ASSISTANT = {"role": "assistant", "content": "well"}


def completion(**fields):
    return msgspec.json.decode(msgspec.json.encode(fields), type=CompletionRequest)


def chat(*messages, **fields):
    body = {"messages": messages or [USER]} | fields
    return msgspec.json.decode(msgspec.json.encode(body), type=ChatCompletionRequest)


def served(tokenizer, **settings):
    return ServedModel.of(Settings(**settings), loaded(object(), tokenizer))


MODEL = served(byte_level())
TRUSTING = served(byte_level(), trust_request_chat_template=True)


@pytest.fixture
def tokenizer():
    return MODEL.tokenizer


@pytest.fixture
def ids():
    def ids(prompt, *, using=MODEL, **fields):
        request = completion(prompt=prompt, **fields)
        return [list(p.token_ids) for p in completion_prompts(request, using)]

    return ids


def refused(call, param, code):
    with pytest.raises(InvalidRequest) as caught:
        call()
    assert (caught.value.param, caught.value.code) == (param, code)
    return caught.value.message


class TestCompletionPrompts:
    def test_all_forms_of_one_text_are_the_same_prompt(self, tokenizer, ids):
        [hello] = ids("Hello!")
        assert tokenizer.decode(hello) == "Hello!"
        assert ids(["Hello!"]) == ids(hello) == ids([hello]) == [hello]

    def test_ancestor_pre_tokenized_prompts_are_accepted_exactly_as_given(self, ids):
        assert ids([5, 0, 399, 5]) == [[5, 0, 399, 5]]
        assert ids([[5], [6, 7]]) == [[5], [6, 7]]
        with_bos = served(byte_fallback())
        assert ids([5, 6], using=with_bos) == [[5, 6]]  # no BOS

    def test_texts_keep_their_order(self, tokenizer, ids):
        assert [tokenizer.decode(p) for p in ids(["a", "b", "a"])] == ["a", "b", "a"]

    def test_bos_is_added_to_texts_unless_disabled(self, ids):
        with_bos = served(byte_fallback())
        [prompt] = ids("the", using=with_bos)
        assert prompt[0] == with_bos.tokenizer.bos_token_id
        assert ids("the", using=with_bos, add_special_tokens=False) == [prompt[1:]]
        assert ids("the", using=with_bos, add_special_tokens=None) == [prompt]

    @pytest.mark.parametrize("prompt", ["", None, [""]])
    def test_ancestor_an_empty_prompt_becomes_one_eos_or_bos_token(self, tokenizer, ids, prompt):
        assert ids(prompt) == [[tokenizer.eos_token_id]]
        with_bos = served(byte_fallback())
        assert ids(prompt, using=with_bos) == [[with_bos.tokenizer.bos_token_id]]
        assert ids(prompt, using=with_bos, add_special_tokens=False) == [
            [with_bos.tokenizer.bos_token_id]
        ]

    def test_an_empty_prompt_without_eos_or_bos_is_refused(self, ids):
        refused(lambda: ids("", using=served(metaspace())), "prompt", None)

    def test_a_missing_prompt_equals_null(self, tokenizer):
        [prompt] = completion_prompts(completion(), MODEL)
        assert prompt.token_ids == [tokenizer.eos_token_id]
        assert prompt.text == ""

    @each(
        ("prompt", "code"),
        [
            ([], "empty_array"),
            ([[]], "empty_array"),
            ([[1], []], "empty_array"),
            ([1, "a"], "invalid_value"),
            (["a", [1]], "invalid_value"),
            ([[1], 1], "invalid_value"),
            ([-1], "invalid_value"),
            ([[400000]], "invalid_value"),
            (["a"] * (MAX_PROMPTS + 1), "array_above_max_length"),
            ([[1]] * (MAX_PROMPTS + 1), "array_above_max_length"),
        ],
    )
    def test_invalid_prompts_are_refused(self, ids, prompt, code):
        message = refused(lambda: ids(prompt), "prompt", code)
        assert len(message) < 200

    def test_the_text_is_kept_for_echoes(self):
        texts = [p.text for p in completion_prompts(completion(prompt=["a", ""]), MODEL)]
        assert texts == ["a", ""]
        [prompt] = completion_prompts(completion(prompt=[[1, 2]]), MODEL)
        assert prompt.text is None

    def test_suffix(self, tokenizer, ids):
        prefix, suffix, middle = tokenizer.fim_token_ids()
        [[a], [b]] = ids(["a", "b"])
        assert ids("a", suffix="b") == [[prefix, a, suffix, b, middle]]
        assert ids([[a]], suffix="b") == [[prefix, a, suffix, b, middle]]
        assert ids("a", suffix="") == [[a]]
        with_none = served(byte_fallback())
        refused(lambda: ids("a", suffix="b", using=with_none), "suffix", "unsupported_parameter")
        assert ids("a", suffix="", using=with_none)


class TestTruncation:
    IDS = (1, 2, 3, 4)

    @each(
        ("wanted", "side", "room", "kept"),
        [
            (None, None, 2, [1, 2, 3, 4]),
            (2, None, 99, [3, 4]),
            (2, "left", 99, [3, 4]),
            (2, "right", 99, [1, 2]),
            (9, None, 99, [1, 2, 3, 4]),
            (-1, None, 3, [2, 3, 4]),
            (-1, "right", 3, [1, 2, 3]),
            (-1, None, 99, [1, 2, 3, 4]),
            (-1, None, 0, [4]),
            (-1, None, -5, [4]),
        ],
    )
    def test_tokens_are_kept_on_the_requested_side(self, wanted, side, room, kept):
        request = completion(truncate_prompt_tokens=wanted, truncation_side=side)
        assert list(truncate(self.IDS, request, room=room)) == kept

    def test_truncation_to_zero_tokens_is_refused(self):
        request = completion(truncate_prompt_tokens=0)
        refused(
            lambda: truncate(self.IDS, request, room=9),
            "truncate_prompt_tokens",
            "integer_below_min_value",
        )


@pytest.fixture
def render(tokenizer):
    def render(*messages, allow_template=False, **fields):
        request = chat(*messages, **fields)
        model = TRUSTING if allow_template else MODEL
        ids = counted_prompt(request, model, ())
        return tokenizer.decode(ids, skip_special_tokens=False)

    return render


class TestChatPrompt:
    def test_the_template_is_rendered(self, render):
        assert render() == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"

    @pytest.mark.parametrize("given", [None, True])
    def test_the_generation_prompt_is_added(self, render, given):
        assert render(add_generation_prompt=given).endswith("<|im_start|>assistant\n")

    def test_the_generation_prompt_can_be_disabled(self, render):
        assert render(add_generation_prompt=False) == "<|im_start|>user\nhi<|im_end|>\n"

    @pytest.mark.parametrize("add", [None, False])
    def test_continue_final_message(self, render, add):
        shown = render(USER, ASSISTANT, continue_final_message=True, add_generation_prompt=add)
        assert shown.endswith("<|im_start|>assistant\nwell")

    def test_continuing_with_a_generation_prompt_is_refused(self, render):
        refused(
            lambda: render(
                USER, ASSISTANT, continue_final_message=True, add_generation_prompt=True
            ),
            "continue_final_message",
            "invalid_parameter_combination",
        )

    @pytest.mark.parametrize(
        "last",
        [
            USER,
            {"role": "assistant", "content": ""},
            ASSISTANT | {"tool_calls": [{"id": "1", "function": {"name": "f"}}]},
        ],
    )
    def test_without_a_message_to_continue_it_is_refused(self, render, last):
        refused(
            lambda: render(USER, last, continue_final_message=True), "messages[1]", "invalid_value"
        )

    def test_template_arguments(self, render):
        assert render(chat_template_kwargs={"enable_thinking": True}).count("<think>") == 1
        assert "<think>" not in render(chat_template_kwargs={})

    def test_reasoning_effort_goes_to_the_template(self, render):
        assert "<think>" in render(reasoning_effort="low")
        assert "<think>" not in render(reasoning_effort="none")
        assert "<think>" not in render(
            reasoning_effort="low", chat_template_kwargs={"enable_thinking": False}
        )

    def test_a_chat_template_in_the_request(self, render):
        own = "{{ messages[0].content }}!"
        refused(lambda: render(chat_template=own), "chat_template", "unsupported_parameter")
        assert render(chat_template=own, allow_template=True) == "hi!"

    def test_messages_that_the_template_refuses(self):
        own = "{{ raise_exception('not today') }}"
        with pytest.raises(InvalidRequest, match="not today") as caught:
            counted_prompt(chat(chat_template=own), TRUSTING, ())
        assert caught.value.param == "messages"

    @each(
        ("own", "message"),
        [
            ("", USER),
            ("{{ messages[0].content }}", {"role": "user", "content": ""}),
            ("{{ messages[0].content }}", {"role": "user", "content": []}),
            ("{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}", USER),
        ],
    )
    def test_a_prompt_of_no_tokens_is_refused(self, render, own, message):
        call = lambda: render(message, chat_template=own, allow_template=True)  # noqa: E731
        assert "prompt is empty" in refused(call, "messages", "invalid_value")

    def test_special_tokens_in_user_text_stay_text(self, tokenizer):
        request = chat({"role": "user", "content": "<|im_end|>"})
        ids = counted_prompt(request, MODEL, ())
        assert ids.count(tokenizer.eos_token_id) == 1  # the template's
