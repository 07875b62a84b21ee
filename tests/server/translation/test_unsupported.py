"""Every field is read, refused by name, or known to have no effect."""

import ast
import functools
import inspect
import textwrap

import msgspec
import pytest

from core.contract.errors import InvalidRequest
from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from server.apis.openai import completions, routes
from server.generation.job import new_job
from server.translation import chat, formats, params, prompts, text, tools
from server.translation.refusals import refuse_unsupported, refused_fields
from tests.support.each import each

WITHOUT_EFFECT = {
    # identity, billing and caching
    "user",
    "safety_identifier",
    "metadata",
    "store",
    "service_tier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "request_id",
    "rid",
    # hints that do not change the text
    "prediction",
    "verbosity",
    "cache_prompt",
    "id_slot",
    "sse_ping_interval",
    "timings_per_token",
    "return_progress",
    # choice of an implementation
    "guided_decoding_backend",
}
SHARED = [routes, params, prompts.truncate, new_job]
READERS = {
    ChatCompletionRequest: [
        chat,
        tools,
        prompts.chat_prompt,
        prompts._template_kwargs,
        *SHARED,
    ],
    CompletionRequest: [
        completions,
        text,
        prompts.completion_prompts,
        *SHARED,
    ],
}
UNUSUAL = {
    "stream_reasoning": False,
    "modalities": ["text", "audio"],
    "use_beam_search": True,
    "spaces_between_special_tokens": False,
    "add_special_tokens": True,
    "echo": True,
    "thinking_token_budget": 5,
    "logprob_token_ids": [1],
    "grammar_triggers": [{}],
    "lora": [{}],
    "samplers": ["infill"],
    "typical_p": 0.5,
    "tfs_z": 0.5,
    "documents": [{"text": "x"}],
    "top_n_sigma": 0.5,
    "n_keep": 5,
}
"""A value that each of these fields refuses. Others refuse any value of their type."""

METHODS = {
    "repeat_last_n": {"frequency_penalty": 1},
    "penalize_nl": {"presence_penalty": 1},
    "dynatemp_exponent": {"dynatemp_range": 1},
    "mirostat_tau": {"mirostat": 1},
    "mirostat_eta": {"mirostat": 1},
    "dry_base": {"dry_multiplier": 1},
    "dry_allowed_length": {"dry_multiplier": 1},
    "dry_penalty_last_n": {"dry_multiplier": 1},
    "dry_sequence_breakers": {"dry_multiplier": 1},
    "xtc_threshold": {"xtc_probability": 1},
}
"""The fields that are parameters of a method, and what turns it on."""

NEUTRAL = {
    "n_predict": -1,
    "n_probs": 0,
    "n_keep": -1,
    "n_discard": 0,
    "min_keep": 0,
    "post_sampling_probs": False,
    "repeat_penalty": 1.0,
    "repeat_last_n": 64,
    "samplers": "edkypmxt",
    "guided_whitespace_pattern": "",
    "penalize_nl": True,
    "typical_p": 1.0,
    "tfs_z": 1,
    "top_n_sigma": -1.0,
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": -1,
    "dry_sequence_breakers": ["\n", ":"],
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "grammar_lazy": False,
    "grammar_triggers": [],
    "lora": [],
    "input_prefix": "",
    "input_suffix": "",
    "t_max_predict_ms": -1,
    "lora_path": "",
    "custom_logit_processor": "",
    "custom_params": {},
    "stop_regex": [],
    "use_beam_search": False,
    "length_penalty": 1.0,
    "thinking_token_budget": -1,
    "logits_processors": [],
    "spaces_between_special_tokens": True,
    "logprob_token_ids": [],
    "stream_reasoning": True,
    "modalities": ["text"],
    "documents": [],
    "mm_processor_kwargs": {},
    "add_special_tokens": False,
    "echo": False,
}


@functools.cache
def names_read(*sources):
    """Every ``x.name`` and ``getattr(x, "name", …)`` in the sources."""
    names = set()
    for source in sources:
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(source)))):
            match node:
                case ast.Attribute(attr=name):
                    names.add(name)
                case ast.Call(func=ast.Name("getattr"), args=[_, ast.Constant(str(name)), *_]):
                    names.add(name)
    return names


def made_up(cls, name):
    """A value that the field refuses."""
    if name in UNUSUAL:
        return UNUSUAL[name]
    field = next(f for f in msgspec.inspect.type_info(cls).fields if f.name == name)
    kinds = getattr(field.type, "types", [field.type])
    for kind in kinds:
        match kind:
            case (
                msgspec.inspect.IntType() | msgspec.inspect.FloatType() | msgspec.inspect.AnyType()
            ):
                return 3
            case msgspec.inspect.StrType():
                return "a"
            case msgspec.inspect.BoolType():
                return True
            case msgspec.inspect.DictType():
                return {"a": 1}
    raise AssertionError(f"say in UNUSUAL what {name} may not be: {field.type}")


def decode(cls, **fields):
    body = {"messages": [{"role": "user", "content": "x"}]} if cls is ChatCompletionRequest else {}
    return msgspec.json.decode(msgspec.json.encode(body | fields), type=cls)


@each("cls", READERS)
def test_every_field_is_read_or_refused_or_known_to_have_no_effect(cls):
    for name in cls.__struct_fields__:
        ways = [
            name in names_read(*READERS[cls]),
            name in params._SAME,
            name in formats._FIELDS,
            name in refused_fields(cls),
            name in WITHOUT_EFFECT,
        ]
        assert any(ways), f"{name} would be ignored"
        assert not (name in WITHOUT_EFFECT and any(ways[:4])), f"{name} has a line too many"


@each("cls", READERS)
def test_a_refused_field_is_named(cls):
    for name in refused_fields(cls):
        request = decode(cls, **{name: made_up(cls, name)}, **METHODS.get(name, {}))
        with pytest.raises(InvalidRequest, match="' is not supported") as caught:
            refuse_unsupported(request)
        assert caught.value.param in {name, *METHODS.get(name, {})}
        assert caught.value.code == "unsupported_parameter"


@each("cls", READERS)
def test_null_is_accepted(cls):
    for name in refused_fields(cls):
        if name != "messages" or cls is not ChatCompletionRequest:
            refuse_unsupported(decode(cls, **{name: None}))


@each("cls", READERS)
def test_a_value_without_effect_is_accepted(cls):
    for name, some in refused_fields(cls).items():
        if some:
            limit = {"max_tokens": -1} if name == "n_predict" else {}
            refuse_unsupported(decode(cls, **{name: NEUTRAL[name]}, **limit))


def refused(cls, **fields):
    with pytest.raises(InvalidRequest) as caught:
        refuse_unsupported(decode(cls, **fields))
    return caught.value.param


def test_no_limit_of_llama_cpp_is_that_of_a_chat():
    refuse_unsupported(decode(ChatCompletionRequest, n_predict=-1))
    assert refused(CompletionRequest, n_predict=-1) == "n_predict"


@each("cls", READERS)
def test_names_of_llama_cpp_may_say_the_same_again(cls):
    refuse_unsupported(decode(cls, n_predict=5, max_tokens=5))
    assert refused(cls, n_predict=5, max_tokens=6) == "n_predict"
    refuse_unsupported(decode(cls, repeat_penalty=1.2, repetition_penalty=1.2))
    refuse_unsupported(decode(cls, repeat_penalty=1.2, repeat_last_n=0))
    assert refused(cls, repeat_penalty=1.2, repetition_penalty=1.3) == "repeat_penalty"
    assert refused(cls, repeat_last_n=64, presence_penalty=1) == "repeat_last_n"


@each("cls", READERS)
@each("value", ['["\\n", ":"]', [], {}, -1, 0.5, True, "x", [1, {}]])
def test_a_parameter_of_a_method_that_is_off_may_have_any_form(cls, value):
    for name, method in METHODS.items():
        [(switch, _)] = method.items()
        for off in (0, None):
            refuse_unsupported(decode(cls, **{name: value, switch: off}))
        refuse_unsupported(decode(cls, **{name: value}))


@each("cls", READERS)
@each(
    ("fields", "is_taken"),
    [
        ({"samplers": "edkypmxt", "top_k": 4, "temperature": 0.5}, True),
        ({"samplers": "edskypmxta"}, True),
        ({"samplers": ""}, True),
        ({"samplers": []}, True),
        ({"samplers": ["top_k", "typ_p", "top_p", "temperature"], "top_p": 0.5}, True),
        ({"samplers": "top-k; temp", "top_k": 5, "temperature": 2}, True),
        ({"samplers": ["penalties"], "repetition_penalty": 1, "top_p": 1, "top_k": 0}, True),
        ({"samplers": "k", "top_k": 4, "temperature": 0.5}, False),
        ({"samplers": "tk", "top_p": 0.5}, False),
        ({"samplers": ["dry"], "frequency_penalty": 1}, False),
        ({"samplers": ["temperature", "infill"]}, False),
        ({"samplers": "tz"}, False),
    ],
)
def test_samplers_that_change_nothing_are_taken(cls, fields, is_taken):
    if is_taken:
        refuse_unsupported(decode(cls, **fields))
    else:
        assert refused(cls, **fields) == "samplers"


@pytest.mark.parametrize("cls", READERS)
def test_a_request_without_these_fields_is_accepted(cls):
    refuse_unsupported(decode(cls))


@each(
    ("name", "value"),
    [
        ("user", "u"),
        ("metadata", {"a": "b"}),
        ("store", True),
        ("service_tier", "flex"),
        ("prediction", {"type": "content", "content": "x"}),
        ("verbosity", "low"),
        ("prompt_cache_key", "k"),
        ("safety_identifier", "s"),
        ("parallel_tool_calls", False),
        ("cache_prompt", True),
    ],
)
def test_fields_without_effect_are_accepted(name, value):
    refuse_unsupported(decode(ChatCompletionRequest, **{name: value}))
