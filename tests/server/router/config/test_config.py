"""The file of a router: what is accepted, and one line for everything else."""

import re
import subprocess
import sys
import tomllib
from itertools import pairwise

import pytest

from server.cli.main import parse_command
from server.net.endpoint import ListenError
from server.router.child import command_of
from server.router.config.config import (
    ConfigError,
    RouteConfig,
    RoutedModelConfig,
    make_config,
    read_config,
)
from server.router.config.settings import RouteSettings, environ_of_models
from server.router.run import run
from server.settings.settings import Settings
from tests.support.source_tree import ROOT

COMMAND = {"command": ["llama-server", "--port", "{port}"]}


def test_a_file_with_every_kind_of_model(tmp_path):
    path = tmp_path / "models.toml"
    path.write_text(
        """
        default = "small"
        max_loaded = 1
        memory = "8GiB"
        keep_alive = 60.0

        [models.small]
        serve = []
        aliases = ["gpt-4o-mini"]
        memory = "1GiB"
        preload = true

        [models.llama]
        command = ["llama-server", "-m", "x.gguf", "--port", "{port}"]
        memory = "4GiB"
        keep_alive = 5

        [models."org/far"]
        url = ["http://10.0.0.1:8000", "http://10.0.0.2:8000/v1"]
        model = "there"
        api_key_env = "FAR_KEY"
        """
    )
    settings = parse_command(["route", "--config", str(path), "--port", "0"], {})
    assert isinstance(settings, RouteSettings)
    assert settings.server.port == 0
    config = read_config(settings.config, {"FAR_KEY": "k"})
    assert config.names()["gpt-4o-mini"] == "small"
    assert config.models["llama"].num_memory_bytes == 4 * 2**30
    assert [a.base for a in config.models["org/far"].addresses] == ["", ""]


def test_the_file_of_the_documentation_is_one():
    page = (ROOT / "docs" / "routing.md").read_text()
    [text] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    config = make_config(tomllib.loads(text))
    assert config.default == "small"
    documented = re.findall(
        r"^\| ((?:`\w+`(?:, )?)+) \|", (ROOT / "docs" / "routing.md").read_text(), re.MULTILINE
    )
    named = {name for row in documented for name in re.findall(r"\w+", row)}
    assert named >= {*RouteConfig.__struct_fields__, *RoutedModelConfig.__struct_fields__} - {
        "models"
    }


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"models": {}}, "there is no model"),
        ({"models": {"a": {}}}, "exactly one of serve, command and url"),
        ({"models": {"a": {"serve": [], "url": "http://x"}}}, "exactly one of"),
        ({"models": {"a": {"command": ["x"]}}}, "contains {port} or {socket}"),
        ({"models": {"a": {"url": "ftp://x"}}}, "neither http"),
        ({"models": {"a": {"url": []}}}, "url is empty"),
        ({"models": {"a": {"url": "http://x", "preload": True}}}, "cannot be told how"),
        ({"models": {"a": {"serve": [], "memory": "x"}}}, "is not a size"),
        ({"models": {"a": {"serve": [], "aliases": ["b"]}, "b": {"serve": []}}}, "names two"),
        ({"models": {"a": {"serve": [], "bogus": 1}}}, "unknown field `bogus`"),
        ({"models": {"a": {"serve": []}}, "default": "b"}, "is not one of the models"),
        ({"models": {"a": {"serve": []}}, "max_loaded": 0}, "max_loaded must be above 0"),
        ({"models": {"a": {"serve": []}}, "wait_timeout": -1.0}, "must not be negative"),
        ({"models": {"a": {"serve": []}}, "memory": "1GiB"}, "needs memory"),
        (
            {"models": {"a": {"serve": [], "memory": "2GiB"}}, "memory": "1GiB"},
            "more memory than all",
        ),
        ({"models": {"a\n": {"serve": []}}}, "is not a name"),
    ],
)
def test_what_cannot_be_meant_is_refused(data, said):
    with pytest.raises(ConfigError, match=said.replace("{", r"\{")):
        make_config(data)


@pytest.mark.parametrize("text", [None, "a = ", "\udcff"])
def test_a_file_that_cannot_be_read_ends_the_program_with_one_line(tmp_path, text, capsys):
    path = tmp_path / "models.toml"
    if text is not None:
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert run(parse_command(["route", "--config", str(path)], {})) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("environ", [{}, {"THEIR_KEY": " \n"}])
def test_a_key_that_is_not_there_is_named(tmp_path, environ):
    path = tmp_path / "models.toml"
    path.write_text('[models.far]\nurl = "http://h"\napi_key_env = "THEIR_KEY"\n')
    with pytest.raises(ConfigError, match=r"model 'far': the variable THEIR_KEY .* is not set"):
        read_config(str(path), environ)
    assert read_config(str(path), {"THEIR_KEY": "k\n"}).models["far"].api_key_env == "THEIR_KEY"


def test_the_key_of_the_router_is_no_key_of_a_server(tmp_path, monkeypatch, capsys):
    """Models do not get the router's own variables."""

    def open_endpoint(*_args, **_options):
        raise ListenError("the key was found")

    monkeypatch.setattr("server.router.run.open_endpoint", open_endpoint)
    monkeypatch.setenv("ROSEINFER_API_KEY", "ours")
    path = tmp_path / "models.toml"
    path.write_text('[models.far]\nurl = "http://h"\napi_key_env = "ROSEINFER_API_KEY"\n')
    assert run(RouteSettings(config=str(path), server=Settings())) == 2
    assert "the variable ROSEINFER_API_KEY of api_key_env" in capsys.readouterr().err


def test_flags_that_have_no_meaning_here_are_refused(capsys):
    for argv in (["--max-num-seqs", "4"], ["--rate-limit", "10,1000"], []):
        flags = ["--config", "models.toml"] if argv else []
        with pytest.raises(SystemExit):
            parse_command(["route", *flags, *argv], {})
    assert "counts requests, not tokens" in capsys.readouterr().err


def test_a_served_model_knows_its_names_and_listens_where_only_the_router_can_connect():
    config = make_config({"models": {"a": {"serve": ["x.gguf"], "aliases": ["b"]}, "c": COMMAND}})
    command = command_of("a", config.models["a"])
    assert command[:5] == [sys.executable, "-m", "server", "serve", "x.gguf"]
    names = [value for flag, value in pairwise(command) if flag == "--served-model-name"]
    assert names == ["a", "b"]
    assert command[command.index("--uds") + 1] == "{socket}"
    assert command_of("c", config.models["c"]) == COMMAND["command"]


def test_models_do_not_get_the_routers_own_flags():
    environ = {"ROSEINFER_API_KEY": "k", "ROSEINFER_PORT": "1", "ROSEINFER_THREADS": "2", "A": "b"}
    environ |= {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_PID": "1", "WATCHDOG_USEC": "9"}
    assert environ_of_models(environ) == {"ROSEINFER_THREADS": "2", "A": "b"}


def test_the_program_imports_neither_torch_nor_the_engine():
    show = "import sys, server.router.run; print(*sys.modules)"
    done = subprocess.run(  # noqa: S603 - this repository's own code
        [sys.executable, "-c", show], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "server.router.fleet" in loaded
    assert (
        not {"torch", "transformers", "numpy", "core.engine.engine", "server.bridge.bridge"}
        & loaded
    )
