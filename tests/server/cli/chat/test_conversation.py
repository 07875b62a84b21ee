from __future__ import annotations

import json

import pytest

from server.cli.chat.chat import Transcript
from server.cli.chat.client import ChatError


@pytest.fixture
def talk():
    talk = Transcript([], "m", "Be brief.")
    talk.add("One?", "1")
    talk.add("Two?", "2")
    return talk


def test_a_request_has_everything_said_before(talk):
    roles = ["system", "user", "assistant", "user", "assistant", "user"]
    assert [message["role"] for message in talk.request("Three?")] == roles
    assert talk.request("Three?")[-1] == {"role": "user", "content": "Three?"}
    assert Transcript([]).request("x") == [{"role": "user", "content": "x"}]


def test_the_last_answer_is_taken_back(talk):
    assert talk.take_back() == "Two?"
    assert [message["content"] for message in talk.request("x")] == ["Be brief.", "One?", "1", "x"]
    assert talk.take_back() == "One?"
    assert talk.take_back() is None


def test_what_was_saved_is_loaded(talk, tmp_path):
    talk.save(tmp_path / "x.json")
    other = Transcript.load(tmp_path / "x.json")
    assert other.request("x") == talk.request("x")
    assert json.loads((tmp_path / "x.json").read_text())["model"] == "m"
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"messages": [{"role": "assistant", "content": "x"}]}',
        '{"messages": [{"role": "user", "content": "x"}]}',
        '{"messages": [], "other": 1}',
        "[" * 5000,
    ],
)
def test_what_is_no_saved_chat_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ChatError, match=r"x\.json is not a saved chat"):
        Transcript.load(tmp_path / "x.json")


def test_files_that_cannot_be_read_or_written(talk, tmp_path):
    with pytest.raises(ChatError, match="cannot read"):
        Transcript.load(tmp_path / "no.json")
    with pytest.raises(ChatError, match="cannot write"):
        talk.save(tmp_path / "no" / "x.json")
