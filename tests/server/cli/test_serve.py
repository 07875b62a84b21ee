from __future__ import annotations

import contextlib
import io
import json
import re
import shlex

import msgspec
import pytest

from core.contract.info import EngineInfo, ModelPath, PoolingInfo
from core.observe import load_progress
from core.observe.load_progress import LoadStage
from server.cli.serve import StartUp, amount, announce, facts_of
from server.net.endpoint import open_endpoint
from server.settings.settings import Settings

INFO = EngineInfo(
    max_model_len=40960,
    max_num_seqs=64,
    vocab_size=9,
    num_token_ids=9,
    num_kv_tokens=131072,
    dtype="bfloat16",
    device="cpu",
    computation="bfloat16 weights in compiled kernels",
    path=ModelPath(
        name="layer by layer", expected="whole model in one call", slower_because="no reason"
    ),
    num_threads=8,
)


def test_the_facts_of_a_server():
    settings = Settings(served_model_names=("org/m", "m"))
    assert facts_of(settings, "http://127.0.0.1:8000", INFO) == [
        ("model", "org/m, m"),
        ("dtype", "bfloat16 on cpu"),
        ("context", "40,960 tokens"),
        ("cache", "131,072 tokens"),
        ("threads", "8"),
        ("path", "layer by layer, not whole model in one call: no reason"),
        ("kernels", "bfloat16 weights in compiled kernels"),
        ("URL", "http://127.0.0.1:8000/v1"),
        ("keys", "none: whoever reaches the URL may use it"),
        ("page", "http://127.0.0.1:8000/"),
    ]


def test_a_model_of_vectors_says_how_it_makes_them(announced):
    made = {"poolings": ("cls", "mean"), "is_normalized": True}
    info = msgspec.structs.replace(INFO, pooling=PoolingInfo(task="embed", size=4, **made))
    assert dict(facts_of(Settings(), "http://x", info))["vectors"] == (
        "pooling cls and mean, normalised"
    )
    first = announced(info, is_terminal=False).splitlines()[0]
    assert first.endswith("context 40960 tokens, pooling cls and mean, normalised.")


def test_facts_that_differ():
    pooling = INFO.__class__(
        **{name: getattr(INFO, name) for name in INFO.__struct_fields__}
        | {"pooling": PoolingInfo(task="embed", size=4)}
    )
    facts = dict(facts_of(Settings(uds="/r.sock", api_keys=("a", "b")), "unix:/r.sock", pooling))
    assert "cache" not in facts
    assert facts["URL"] == "unix:/r.sock"
    assert facts["keys"] == "2 given"
    assert "page" not in facts
    assert "page" not in dict(facts_of(Settings(ui=False), "http://x", INFO))


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        (LoadStage("x", 1_200_000_000, 3_400_000_000, True), "1,200 of 3,400 MB"),
        (LoadStage("x", 1_200_000, 0, True), "1 MB"),
        (LoadStage("x", 3, 4), "75%"),
        (LoadStage("x", 9, 4), "100%"),
        (LoadStage("x"), ""),
    ],
)
def test_how_much_of_a_stage_is_done(stage, text):
    assert amount(stage) == text


def test_nothing_is_drawn_where_stderr_is_no_terminal(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    start_up = StartUp(Settings(), None)
    with contextlib.closing(open_endpoint(Settings(port=0))) as endpoint:
        start_up.begin(endpoint)
    start_up.end()
    assert stream.getvalue() == ""


def test_a_load_reports_while_it_runs():
    def load():
        load_progress.begin("loading", 3)
        return load_progress.listener().now.name

    assert StartUp(Settings(), load).load() == "loading"
    assert load_progress.listener() is None


class Stream(io.StringIO):
    """A stdout that says whether it is a terminal."""

    def __init__(self, *, is_terminal):
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self):
        return self._is_terminal


@pytest.fixture
def announced(monkeypatch):
    """What is printed for a server on a free port, without styles; the port becomes 8000."""

    def print_it(info, *, is_terminal, takes_messages=True, ends="", **settings):
        stream = Stream(is_terminal=is_terminal)
        given = Settings(port=0, **settings)
        with contextlib.closing(open_endpoint(given)) as endpoint, monkeypatch.context() as patch:
            patch.setattr("sys.stdout", stream)
            announce(given, endpoint, info, ends, takes_messages=takes_messages)
            port = endpoint.url.rpartition(":")[2]
        return re.sub(r"\x1b\[\d*m", "", stream.getvalue()).replace(port, "8000")

    return print_it


CURL = "Try:  curl http://127.0.0.1:8000"


def test_lines_where_stdout_is_no_terminal(announced):
    first, last = announced(INFO, is_terminal=False).splitlines()
    assert first == (
        "Serving roseinfer-tiny: bfloat16 on cpu, layer by layer, context 40960 tokens, "
        "room for 131072 in the cache."
    )
    assert last.startswith(f"{CURL}/v1/chat/completions -H ")


def test_the_tokens_that_end_an_answer_are_shown(announced):
    ends = "<|endoftext|>, <|im_end|>"
    first, _ = announced(INFO, is_terminal=False, ends=ends).splitlines()
    assert first.endswith(f"in the cache, ends at {ends}.")
    assert dict(facts_of(Settings(), "http://x", INFO, ends))["ends at"] == ends


def test_a_table_on_a_terminal(announced, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    *table, last = announced(INFO, is_terminal=True, api_keys=("k",)).splitlines()
    rows = dict(line.split(maxsplit=1) for line in map(str.strip, table) if line)
    assert rows == {
        "model": "roseinfer-tiny",
        "dtype": "bfloat16 on cpu",
        "context": "40,960 tokens",
        "cache": "131,072 tokens",
        "threads": "8",
        "path": "layer by layer, not whole model in one call: no reason",
        "kernels": "bfloat16 weights in compiled kernels",
        "URL": "http://127.0.0.1:8000/v1",
        "keys": "1 given",
        "page": "http://127.0.0.1:8000/",
    }
    assert last.startswith(f"{CURL}/v1/chat/completions -H ")


def test_a_long_value_is_folded_not_cut(announced, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    names = tuple(f"a-long-name-of-a-model-{number}" for number in range(3))
    table = announced(INFO, is_terminal=True, served_model_names=names)
    assert "".join(table.split()).startswith(f"model{','.join(names)}dtype")


@pytest.mark.parametrize(
    ("task", "path", "body"),
    [
        ("embed", "/v1/embeddings", {"input": "Hello!"}),
        ("score", "/v1/rerank", {"query": "Who?", "documents": ["I.", "You."]}),
    ],
)
def test_the_example_is_one_that_the_model_answers(announced, task, path, body):
    info = msgspec.structs.replace(INFO, pooling=PoolingInfo(task=task, size=4))
    first, last = announced(info, is_terminal=False).splitlines()
    assert first.endswith("context 40960 tokens.")
    assert last.startswith(f"{CURL}{path} -H ")
    assert json.loads(shlex.split(last)[-1]) == body


def test_the_example_of_a_model_without_a_chat_template_is_a_completion(announced):
    last = announced(INFO, is_terminal=False, takes_messages=False).splitlines()[-1]
    assert last.startswith(f"{CURL}/v1/completions -H ")
    assert json.loads(shlex.split(last)[-1]) == {"prompt": "Once upon a time"}
