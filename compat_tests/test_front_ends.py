"""The bodies that front ends send with all of their settings at the defaults."""

import pytest

from compat_tests.support.api import CHAT, COMPLETIONS, Api, user

LLAMA_CPP_PAGE = {
    "stream": True,
    "cache_prompt": True,
    "reasoning_format": "none",
    "samplers": "edkypmxt",
    "temperature": 0.8,
    "dynatemp_range": 0,
    "dynatemp_exponent": 1,
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.05,
    "typical_p": 1,
    "xtc_probability": 0,
    "xtc_threshold": 0.1,
    "repeat_last_n": 64,
    "repeat_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "dry_multiplier": 0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": -1,
    "max_tokens": -1,
    "timings_per_token": False,
}
"""llama.cpp's page: the default values of its settings (``CONFIG_DEFAULT``)."""

LLAMA_CPP_TEXT = {
    "stream": True,
    "n_predict": 16,
    "max_tokens": 16,
    "temperature": 0.7,
    "stop": ["</s>", "User:", ""],
    "repeat_last_n": 0,
    "repeat_penalty": 1.18,
    "penalize_nl": False,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": -1,
    "dry_sequence_breakers": ["\n", ":", '"', "*"],
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.05,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "top_n_sigma": -1.0,
    "typical_p": 1.0,
    "tfs_z": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "mirostat": 0,
    "mirostat_tau": 5,
    "mirostat_eta": 0.1,
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "grammar": "",
    "grammar_lazy": False,
    "grammar_triggers": [],
    "n_probs": 0,
    "min_keep": 0,
    "n_keep": 0,
    "n_discard": 0,
    "n_indent": 0,
    "n_cmpl": 1,
    "seed": -1,
    "ignore_eos": False,
    "logit_bias": [],
    "samplers": ["penalties", "dry", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"],
    "image_data": [],
    "multimodal_data": [],
    "cache_prompt": True,
    "return_tokens": False,
    "return_progress": False,
    "post_sampling_probs": False,
    "timings_per_token": False,
    "response_fields": [],
    "t_max_predict_ms": 0,
    "t_max_prompt_ms": 0,
    "lora": [],
    "id_slot": -1,
    "slot_id": -1,
    "input_prefix": "",
    "input_suffix": "",
    "api_key": "",
}
"""Fields that llama.cpp's server takes for a text, each with a value that turns its method off."""

SILLY_TAVERN = {
    "max_new_tokens": 16,
    "max_tokens": 16,
    "temperature": 0.7,
    "top_p": 0.5,
    "typical_p": 1,
    "typical": 1,
    "min_p": 0,
    "repetition_penalty": 1.2,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "top_k": 40,
    "skew": 0,
    "min_tokens": 0,
    "add_bos_token": True,
    "smoothing_factor": 0,
    "smoothing_curve": 1,
    "dry_allowed_length": 2,
    "dry_multiplier": 0,
    "dry_base": 1.75,
    "dry_sequence_breakers": '["\\n", ":", "\\"", "*"]',
    "dry_penalty_last_n": 0,
    "max_tokens_second": 0,
    "stopping_strings": ["\nUser:"],
    "stop": ["\nUser:"],
    "truncation_length": 2048,
    "ban_eos_token": False,
    "skip_special_tokens": True,
    "include_reasoning": True,
    "top_a": 0,
    "tfs": 1,
    "mirostat_mode": 0,
    "mirostat_tau": 5,
    "mirostat_eta": 0.1,
    "custom_token_bans": "",
    "banned_strings": [],
    "api_type": "generic",
    "api_server": "http://127.0.0.1:8000",
    "xtc_threshold": 0.1,
    "xtc_probability": 0,
    "nsigma": 0,
    "top_n_sigma": 0,
    "min_keep": 0,
    "adaptive_target": -0.01,
    "adaptive_decay": 0.9,
    "rep_pen": 1.2,
    "rep_pen_range": 0,
    "repetition_penalty_range": 0,
    "guidance_scale": 1,
    "negative_prompt": "",
    "repeat_penalty": 1.2,
    "repeat_last_n": 0,
    "n_predict": 16,
    "num_predict": 16,
    "num_ctx": 2048,
    "mirostat": 0,
    "ignore_eos": False,
    "rep_pen_slope": 1,
    "stream": True,
}
"""SillyTavern's text completion, as its ``createTextGenGenerationData`` builds it."""

SILLY_TAVERN_LLAMA_CPP = SILLY_TAVERN | {
    "api_type": "llamacpp",
    "n": 1,
    "samplers": [
        *("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc"),
        *("temperature", "adaptive_p"),
    ],
    "logit_bias": [],
    "grammar": "",
    "cache_prompt": True,
    "dry_sequence_breakers": ["\n", ":", '"', "*"],
}


@pytest.mark.parametrize(
    "body", [LLAMA_CPP_TEXT, SILLY_TAVERN, SILLY_TAVERN_LLAMA_CPP, LLAMA_CPP_PAGE]
)
def test_a_whole_panel_of_samplers_is_served(api: Api, body):
    path, prompt = COMPLETIONS, {"prompt": "Once upon a time"}
    if body is LLAMA_CPP_PAGE:
        path, prompt = CHAT, {"messages": user("Hello!"), "max_tokens": 8}
    for stream in (True, False):
        reply = api.post(path, body | prompt | {"stream": stream})
        assert reply.status == 200, reply.text
        ignored = reply.header("x-roseinfer-ignored") or ""
        assert not {"grammar", "samplers", "logit_bias", "mirostat"} & {*ignored.split(", ")}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"dry_multiplier": 0.8}, "dry_multiplier"),
        ({"xtc_probability": 0.5}, "xtc_probability"),
        ({"mirostat": 2}, "mirostat"),
        ({"samplers": ["temperature"]}, "samplers"),
        ({"grammar": "x ::= y"}, "grammar"),
        ({"repeat_penalty": 1.1, "repeat_last_n": 64}, "repeat_penalty"),
    ],
)
def test_what_a_panel_turns_on_is_refused_by_name(api: Api, fields, param):
    reply = api.post(COMPLETIONS, SILLY_TAVERN_LLAMA_CPP | {"prompt": "a"} | fields)
    assert (reply.status, reply.json["error"]["param"]) == (400, param)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    "fields",
    [
        {"stop": [""]},
        {"bad_words": [""]},
        {"allowed_token_ids": []},
        {"logit_bias": []},
        {"grammar": ""},
        {"regex": ""},
        {"ebnf": ""},
        {"guided_regex": ""},
        {"guided_choice": []},
        {"guided_whitespace_pattern": ""},
        {"structural_tag": ""},
        {"json_schema": ""},
        {"samplers": ""},
    ],
)
def test_an_empty_field_is_not_given(api: Api, path, fields):
    make = api.chat_body if path == CHAT else api.completion_body

    def answer(fields):
        reply = api.post(path, make("Hello!", max_tokens=12, temperature=0, **fields))
        assert reply.status == 200, reply.text
        return [c.get("text") or c["message"]["content"] for c in reply.json["choices"]]

    assert answer(fields) == answer({})
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["x"]}}}
    assert answer(fields | {"response_format": schema}) == ['"x"']
