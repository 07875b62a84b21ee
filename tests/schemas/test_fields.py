"""Every field that a client may send is declared, because undeclared fields are ignored."""

import itertools

import pytest
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params

from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from schemas.formats import ConstraintFields
from schemas.llama_cpp import LlamaCppFields, LlamaCppSamplingFields
from schemas.sampling import SamplingFields

EXTENSIONS = [
    "top_k",
    "min_p",
    "repetition_penalty",
    "min_tokens",
    "ignore_eos",
    "stop_token_ids",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "bad_words",
    "allowed_token_ids",
    "use_beam_search",
    "length_penalty",
    "prompt_logprobs",
    "logprob_token_ids",
    "return_token_ids",
    "return_tokens_as_token_ids",
    "truncate_prompt_tokens",
    "truncation_side",
    "add_special_tokens",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "guided_decoding_backend",
    "regex",
    "ebnf",
    "json_schema",
    "grammar",
    "thinking_token_budget",
    "priority",
    "request_id",
    "rid",
    "cache_salt",
    "stream_interval",
    "n_predict",
    "n_probs",
    "cache_prompt",
    "timings_per_token",
    "sse_ping_interval",
    "return_progress",
    "response_format",
]
CHAT_EXTENSIONS = [
    "add_generation_prompt",
    "continue_final_message",
    "echo",
    "chat_template",
    "chat_template_kwargs",
    "documents",
    "include_reasoning",
    "separate_reasoning",
]


def sdk_fields(module):
    """The parameters that the official SDK can send."""
    base = module.CompletionCreateParamsBase.__annotations__
    return {*base, *module.CompletionCreateParamsStreaming.__annotations__}


@pytest.mark.parametrize(
    ("struct", "module"),
    [
        (ChatCompletionRequest, chat_create_params),
        (CompletionRequest, completion_create_params),
    ],
)
def test_every_parameter_of_the_sdk_is_declared(struct, module):
    assert sdk_fields(module) <= set(struct.__struct_fields__)


def test_every_extension_is_declared():
    assert {*EXTENSIONS, *CHAT_EXTENSIONS} <= set(ChatCompletionRequest.__struct_fields__)
    assert {*EXTENSIONS, "echo"} <= set(CompletionRequest.__struct_fields__)


def test_each_base_adds_fields():
    chain = [LlamaCppSamplingFields, LlamaCppFields, ConstraintFields, SamplingFields]
    sizes = [len(group.__struct_fields__) for group in chain]
    assert sizes == sorted(set(sizes))
    for smaller, larger in itertools.pairwise(chain):
        assert set(smaller.__struct_fields__) < set(larger.__struct_fields__)


def test_structs_are_frozen_and_documented(any_struct):
    assert any_struct.__struct_config__.frozen
    assert not any_struct.__struct_config__.gc
    assert any_struct.__doc__
