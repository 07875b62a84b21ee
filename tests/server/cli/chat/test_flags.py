from __future__ import annotations

import pytest

from server.cli.chat.flags import ChatSettings
from server.cli.chat.terminal import history_path
from server.cli.main import parse_command
from server.settings.settings import parse_settings


def test_flags_of_the_private_server_reach_it_as_they_were_given():
    flags = [
        "--dtype",
        "float32",
        "--kv-cache-memory",
        "1.5GiB",
        "--gpu-memory-utilization",
        "0.5",
        "--no-enable-prefix-caching",
        "--max-step-ms",
        "20.5",
        "--threads",
        "3",
    ]
    settings = parse_command(["chat", "org/model", *flags], {})
    assert isinstance(settings, ChatSettings)
    assert settings.model == "org/model"
    assert parse_settings(["serve", *settings.serve], {}) == parse_settings(["serve", *flags], {})


def test_they_have_no_meaning_with_another_server(capsys):
    with pytest.raises(SystemExit) as caught:
        parse_command(["chat", "--base-url", "http://x/v1", "--threads", "3"], {})
    assert caught.value.code == 2
    assert "--threads has a meaning only without --base-url" in capsys.readouterr().err


def test_the_key_is_also_that_of_the_environment():
    environ = {"ROSEINFER_API_KEY": "one,two"}
    assert parse_command(["chat"], environ) == ChatSettings(api_key="one")
    assert parse_command(["chat", "--api-key", "x"], environ) == ChatSettings(api_key="x")
    assert parse_command(["chat"], {}) == ChatSettings()


def test_where_the_history_is():
    assert str(history_path({"XDG_CACHE_HOME": "/c"})) == "/c/roseinfer/chat_history"
    assert history_path({}).is_absolute()
