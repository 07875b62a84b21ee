"""C-046 to C-054: stop strings, all taken from text that the model really writes."""

import pytest

from compat_tests.support.api import (
    Api,
    chat_text_of,
    completion_text_of,
    finish_reasons,
    in_threads,
)

PROMPT = "Once upon a time"
LENGTH = 48
FIXED = {"max_tokens": LENGTH, "ignore_eos": True}


@pytest.fixture(scope="module")
def greedy(server) -> str:
    """The text that everything here is cut from."""
    text = Api(server).text(PROMPT, **FIXED)
    assert len(set(text)) > 8, text
    return text


def windows(text: str) -> list[str]:
    """Substrings from everywhere: within a token, across two, across several."""
    return [
        text[start : start + width]
        for start in range(2, len(text) - 12, max(1, len(text) // 9))
        for width in (1, 2, 5, 11)
    ]


def cut(text: str, *stops: str) -> str:
    """The text before the match that completes first; of equals, the one listed first."""
    ends = [
        (text.find(stop) + len(stop), number, stop)
        for number, stop in enumerate(stops)
        if stop in text
    ]
    if not ends:
        return text
    end, _, stop = min(ends)
    return text[: end - len(stop)]


def test_c046_string_and_list_are_the_same(api: Api, greedy: str) -> None:
    stop = greedy[5:8]
    first = api.complete(PROMPT, stop=stop, **FIXED)
    second = api.complete(PROMPT, stop=[stop], **FIXED)
    assert first["choices"] == second["choices"]
    assert first["choices"][0]["finish_reason"] == "stop"


def test_c047_cut_before_the_first_occurrence(api: Api, greedy: str) -> None:
    def run(stop: str) -> dict:
        return api.complete(PROMPT, stop=stop, **FIXED)["choices"][0]

    stops = windows(greedy)
    for stop, choice in zip(stops, in_threads(run, stops, width=8), strict=True):
        assert choice["text"] == cut(greedy, stop), stop
        assert choice["finish_reason"] == "stop"
        assert choice["stop_reason"] == stop


def test_c047_chat(api: Api) -> None:
    text = api.chat_text("Tell me a story.", max_tokens=40)
    for stop in windows(text)[::3]:
        choice = api.chat("Tell me a story.", max_tokens=40, stop=stop)["choices"][0]
        assert choice["message"]["content"] == cut(text, stop)
        assert choice["finish_reason"] == "stop"


def test_c047_trimmed_tokens_count(api: Api, greedy: str) -> None:
    stop = greedy[10:14]
    usage = api.complete(PROMPT, stop=stop, **FIXED)["usage"]
    assert 1 <= usage["completion_tokens"] <= LENGTH
    shorter = api.complete(PROMPT, stop=stop, **(FIXED | {"max_tokens": 200}))["usage"]
    assert shorter["completion_tokens"] == usage["completion_tokens"]


def test_c048_streamed(api: Api, greedy: str) -> None:
    def run(stop: str) -> list[dict]:
        return api.stream_completion(PROMPT, stop=stop, **FIXED)

    stops = windows(greedy)
    for stop, chunks in zip(stops, in_threads(run, stops, width=8), strict=True):
        assert completion_text_of(chunks) == cut(greedy, stop), stop
        assert finish_reasons(chunks) == ["stop"]


def test_c048_streamed_chat(api: Api) -> None:
    text = api.chat_text("Tell me a story.", max_tokens=40)
    for stop in windows(text)[::3]:
        chunks = api.stream_chat("Tell me a story.", max_tokens=40, stop=stop)
        assert chat_text_of(chunks) == cut(text, stop)
        assert finish_reasons(chunks) == ["stop"]
        for chunk in chunks[1:-1]:
            assert chunk["choices"][0]["delta"].get("content")


def test_c049_a_match_that_never_completes(api: Api, greedy: str) -> None:
    stops = [greedy[-3:] + "☃", greedy[10:15] + "☃", greedy[4:20] + "☃"]
    for stop in (*stops, stops):
        choice = api.complete(PROMPT, stop=stop, **FIXED)["choices"][0]
        assert choice["text"] == greedy
        assert choice["finish_reason"] == "length"
        chunks = api.stream_completion(PROMPT, stop=stop, **FIXED)
        assert completion_text_of(chunks) == greedy
        assert finish_reasons(chunks) == ["length"]


def test_c050_the_first_match_wins_not_the_first_listed(api: Api, greedy: str) -> None:
    late, early = greedy[30:36], greedy[8:12]
    expected = cut(greedy, late, early)
    assert api.text(PROMPT, stop=[late, early], **FIXED) == expected
    assert api.text(PROMPT, stop=[early, late], **FIXED) == expected


def test_c050_nested_matches(api: Api, greedy: str) -> None:
    outer, inner = greedy[8:16], greedy[11:13]
    for stops in ([outer, inner], [inner, outer]):
        assert api.text(PROMPT, stop=stops, **FIXED) == cut(greedy, *stops)


def test_c051_the_prompt_is_not_searched(api: Api) -> None:
    prompt = "Qx7Zj is a word. " + PROMPT
    plain = api.text(prompt, **FIXED)
    assert "Qx7Zj" not in plain
    body = api.complete(prompt, stop="Qx7Zj", **FIXED)["choices"][0]
    assert body["text"] == plain
    assert body["finish_reason"] == "length"


def test_c051_echoed_text_is_not_cut(api: Api) -> None:
    prompt = "Qx7Zj is a word. " + PROMPT
    plain = api.text(prompt, **FIXED)
    assert api.text(prompt, stop="Qx7Zj", echo=True, **FIXED) == prompt + plain


def test_c051_a_match_does_not_begin_in_the_prompt(api: Api, greedy: str) -> None:
    choice = api.complete(PROMPT, stop=PROMPT[-2:] + greedy[:3], **FIXED)["choices"][0]
    assert choice["text"] == greedy


@pytest.mark.parametrize("name", ["include_stop_str_in_output", "no_stop_trim"])
def test_c052_the_stop_string_is_kept_on_request(api: Api, greedy: str, name: str) -> None:
    for stop in windows(greedy)[::4]:
        expected = cut(greedy, stop) + stop
        choice = api.complete(PROMPT, stop=stop, **{name: True}, **FIXED)["choices"][0]
        assert choice["text"] == expected
        assert choice["finish_reason"] == "stop"
        chunks = api.stream_completion(PROMPT, stop=stop, **{name: True}, **FIXED)
        assert completion_text_of(chunks) == expected


@pytest.mark.parametrize("stop", [5, [5], {}, ["a"] * 1000, "a" * 1_000_000])
def test_c053_bad_stop(api: Api, stop: object) -> None:
    assert api.refused_chat("stop", stop=stop)["param"].startswith("stop")
    assert api.refused_completion("stop", stop=stop)["param"].startswith("stop")


def test_c053_none_and_five(api: Api, greedy: str) -> None:
    for stop in ("", [], [""], None, ["☃1", "☃2", "☃3", "☃4", "☃5"]):
        choice = api.complete(PROMPT, stop=stop, **FIXED)["choices"][0]
        assert choice["text"] == greedy
        assert choice["finish_reason"] == "length"


def test_c054_logprobs_stay_in_step_with_trimmed_text(api: Api, greedy: str) -> None:
    for stop in windows(greedy)[::3]:
        choice = api.complete(PROMPT, stop=stop, logprobs=1, **FIXED)["choices"][0]
        logprobs = choice["logprobs"]
        joined = "".join(logprobs["tokens"])
        assert joined.startswith(choice["text"]), (stop, joined)
        sizes = {len(value) for value in logprobs.values()}
        assert len(sizes) == 1
        # no more than the token in which the text ends
        assert len("".join(logprobs["tokens"][:-1])) < max(1, len(choice["text"]))


def test_c054_chat_and_streamed(api: Api) -> None:
    text = api.chat_text("Tell me a story.", max_tokens=40)
    for stop in windows(text)[::5]:
        fields = {"max_tokens": 40, "stop": stop, "logprobs": True}
        choice = api.chat("Tell me a story.", **fields)["choices"][0]
        entries = choice["logprobs"]["content"]
        joined = b"".join(bytes(entry["bytes"]) for entry in entries)
        assert joined.startswith(choice["message"]["content"].encode())
        streamed = [
            entry
            for chunk in api.stream_chat("Tell me a story.", **fields)
            for c in chunk["choices"]
            if c.get("logprobs")
            for entry in c["logprobs"]["content"] or ()
        ]
        assert streamed == entries
