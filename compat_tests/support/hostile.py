"""Random requests whose prompts, templates and parameters are at their edges."""

import json
from random import Random
from typing import Any

from compat_tests.support.api import CHAT, COMPLETIONS, Json

PASS = "{% for m in messages %}{{ m.content }}{% endfor %}"
"""A template that prints contents only: an empty conversation is an empty prompt."""

SYSTEM_ONLY = "{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}"
PARTS_ONLY = "{% for m in messages %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}"

TEMPLATES = [
    *("", " ", PASS, SYSTEM_ONLY, PARTS_ONLY, "{{ messages }}", "{{ bos_token }}{{ eos_token }}"),
    *("{{ messages[9].content }}", "{{ messages[0].content[0].text }}", "{{ 1 / 0 }}", "{%", "{{"),
    *("{{ raise_exception('no') }}", "{% for i in range(10 ** 9) %}x{% endfor %}", "{{ tools }}"),
    *("<|im_end|>" * 3, "{{ 'x' * 9000 }}", "{{ messages | tojson }}", "{{ self.__class__ }}"),
    *("{% set m = messages[0] %}{{ m.content.upper() }}", "{{ messages[0].content | trim }}"),
]
TEXTS = [
    *("", "", "", " ", "\n", "\t \n", "\0", "a", "Hello!", "\u200b", "é🦊", "\u202e", "\ud800"),
    *("<|im_end|>", "<|im_start|>user", "<|endoftext|>", "{{ 7 }}", "{% raw %}", "x" * 9000),
    *("<think>", "</think>", "<tool_call>", "5830174296", "4721908365"),
]
IDS = [0, 1, 2, 3, 257, 2046, 2047]
BAD_IDS = [-1, 2048, 2**31, 2**63]
NUMBERS = [0, 1, -1, 2, 3, 1e-9, 0.5, 1e9, -1e9, 2**31, 2**63 - 1]
SPECIAL = ["<|im_end|>", "<|im_start|>", "<|endoftext|>"]
SCHEMAS: list[Json] = [{}, {"type": "string", "maxLength": 2}, {"enum": [1]}, {"type": "null"}]


def draw(random: Random) -> tuple[str, bytes]:
    """A route and a body. Most bodies are allowed; bodies are answered in a few steps."""
    path, body = random.choice(_MAKERS)(random)
    return path, json.dumps(body).encode()


def _some(random: Random, **values: Any) -> Json:
    """A few of these fields."""
    num_fields = min(random.choice([0, 1, 1, 2, 3]), len(values))
    names = random.sample(sorted(values), num_fields)
    return {name: random.choice(values[name]) for name in names}


def _ids(random: Random) -> list[int]:
    known = random.choices(IDS, k=random.randrange(4))
    return known + random.choices(BAD_IDS, k=random.random() < 0.1)


def _content(random: Random) -> Any:
    text = random.choice(TEXTS)
    if random.random() < 0.7:
        return text
    return [{"type": "text", "text": random.choice(TEXTS)} for _ in range(random.randrange(3))]


def _turns(random: Random, *roles: str) -> list[Json]:
    turns = [
        {"role": random.choice(roles), "content": _content(random)}
        for _ in range(random.choice([1, 1, 2, 3]))
    ]
    for turn in turns:
        if turn["role"] == "tool":
            turn["tool_call_id"] = "c"
    return turns


def _sampling(random: Random) -> Json:
    bias = {str(token_id): random.choice([-100, 100, 0.5]) for token_id in _ids(random)}
    return _some(
        random,
        temperature=[0, 1e-9, 1, 2],
        top_k=[-1, 0, 1, 2**31],
        top_p=[0, 1e-9, 1],
        min_p=[0, 1],
        seed=NUMBERS,
        presence_penalty=[-2, 2],
        frequency_penalty=[-2, 2],
        repetition_penalty=[1e-3, 1, 1000],
        logit_bias=[bias],
        allowed_token_ids=[_ids(random)],
        bad_words=[random.choices(TEXTS[:-5], k=2)],
        stop=[random.choices(TEXTS + SPECIAL, k=2), *SPECIAL],
        stop_token_ids=[_ids(random)],
        min_tokens=[0, 1, 3],
        ignore_eos=[True],
        include_stop_str_in_output=[True],
        skip_special_tokens=[False],
        n=[1, 2],
        stream=[True],
        truncate_prompt_tokens=[-1, 0, 1, 2, 2**31],
        truncation_side=["left", "right"],
        prompt_logprobs=[0, 1, -1],
        priority=NUMBERS,
        cache_salt=["", "s"],
        stream_interval=[1, 3],
        return_token_ids=[True],
        structured_outputs=[{"regex": "[ab]{0,3}"}, {"choice": ["", "a"]}, {"json": {}}],
        response_format=[
            {"type": "json_schema", "json_schema": {"name": "x", "schema": random.choice(SCHEMAS)}}
        ],
    )


def _template(random: Random) -> Json:
    return _some(
        random,
        chat_template=TEMPLATES,
        add_generation_prompt=[True, False],
        continue_final_message=[True],
        chat_template_kwargs=[{"enable_thinking": True}, {"messages": []}, {"x": "<|im_end|>"}],
    )


def _chat(random: Random) -> tuple[str, Json]:
    messages = _turns(random, "user", "user", "system", "assistant", "tool", "developer")
    body = {
        "messages": messages,
        "max_tokens": random.choice([1, 2, 3, -1 if _rare(random) else 1]),
    }
    logprobs = {"logprobs": True, "top_logprobs": 2} if _rare(random) else {}
    template = {"chat_template": random.choice(TEMPLATES)} if random.random() < 0.6 else {}
    return CHAT, body | _sampling(random) | logprobs | template | _template(random)


def _rare(random: Random) -> bool:
    return random.random() < 0.05


def _completion(random: Random) -> tuple[str, Json]:
    prompt: Any = random.choice(
        [random.choice(TEXTS), random.choices(TEXTS, k=2), _ids(random), [_ids(random)], None, []]
    )
    body = {"prompt": prompt, "max_tokens": random.choice([0, 1, 2, 3])}
    more = _some(random, echo=[True], logprobs=[0, 2], best_of=[2], suffix=TEXTS)
    more |= _some(random, add_special_tokens=[True, False])
    return COMPLETIONS, body | _sampling(random) | more


def _messages(random: Random) -> tuple[str, Json]:
    body = {"messages": _turns(random, "user", "assistant"), "max_tokens": random.choice([1, 2, 3])}
    return "/v1/messages", body | _some(
        random,
        system=TEXTS,
        stop_sequences=[random.choices(TEXTS + SPECIAL, k=2)],
        temperature=[0, 1],
        top_k=[0, 1],
        stream=[True],
        thinking=[{"type": "enabled", "budget_tokens": 1024}],
    )


def _count(random: Random) -> tuple[str, Json]:
    body = {"messages": _turns(random, "user", "assistant")}
    return "/v1/messages/count_tokens", body | _some(random, system=TEXTS)


def _response(random: Random) -> tuple[str, Json]:
    turns = [
        {"role": turn["role"], "content": random.choice(TEXTS)}
        for turn in _turns(random, "user", "assistant", "system", "developer")
    ]
    body = {"model": "roseinfer-tiny", "input": random.choice([random.choice(TEXTS), turns])}
    body |= {"max_output_tokens": random.choice([1, 2, 3])}
    return "/v1/responses", body | _some(
        random, instructions=TEXTS, temperature=[0, 2], stream=[True], truncation=["auto"]
    )


def _options(random: Random) -> Json:
    options = {"num_predict": random.choice([1, 2, 3])}
    return options | _some(
        random, temperature=[0, 1], top_k=[0, 1], stop=[random.choices(TEXTS + SPECIAL, k=2)]
    )


def _ollama_chat(random: Random) -> tuple[str, Json]:
    turns = [
        {"role": turn["role"], "content": random.choice(TEXTS)}
        for turn in _turns(random, "user", "assistant", "system", "tool")
    ]
    body = {"messages": turns, "options": _options(random), "stream": random.random() < 0.5}
    return "/api/chat", body | _some(random, format=["json", *SCHEMAS], think=[True, False])


def _ollama_generate(random: Random) -> tuple[str, Json]:
    body = {"prompt": random.choice(TEXTS), "options": _options(random)}
    return "/api/generate", body | _some(
        random, system=TEXTS, raw=[True], suffix=TEXTS, stream=[False], format=["json", *SCHEMAS]
    )


def _generate(random: Random) -> tuple[str, Json]:
    body = {"prompt": random.choice(TEXTS), "max_new_tokens": random.choice([0, 1, 2])}
    return "/generate", body | _some(
        random, temperature=[0, 1], top_k=[0, 1], do_sample=[False], stream=[True]
    )


def _tokenize(random: Random) -> tuple[str, Json]:
    if random.random() < 0.3:
        return "/tokenize", {"prompt": random.choice(TEXTS)}
    return "/tokenize", {"messages": _turns(random, "user", "system")} | _template(random)


def _detokenize(random: Random) -> tuple[str, Json]:
    return "/detokenize", {"tokens": _ids(random)}


_MAKERS = [
    *(_chat, _chat, _completion, _completion, _messages, _count, _response, _ollama_chat),
    *(_ollama_generate, _generate, _tokenize, _detokenize),
]
