import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from core.attention.base import backend_factory
from core.builtin_model import MODEL_ID
from core.contract.config import AttentionBackendName, EngineConfig, ModelConfig
from core.contract.errors import ModelLoadError
from server.cli.main import parse_command
from server.settings.key_file import KeyFile
from server.settings.settings import Settings, parse_settings
from server.settings.types import Rates
from tests.support.each import each

KEY_FILE = str(Path(__file__).parents[1] / "tenants" / "keys.txt")

GIVEN = {
    "gguf_file": ("--gguf-file", "model.gguf", "model.gguf"),
    "config": ("--config", "there", "there"),
    "tokenizer": ("--tokenizer", "elsewhere", "elsewhere"),
    "chat_template": ("--chat-template", "{{ messages }}", "{{ messages }}"),
    "device": ("--device", "cpu", "cpu"),
    "dtype": ("--dtype", "bfloat16", "bfloat16"),
    "task": ("--task", "embed", "embed"),
    "pooling": ("--pooling", "last", "last"),
    "matryoshka_dimensions": ("--matryoshka-dimensions", "512,256", (512, 256)),
    "score_tokens": ("--score-tokens", "yes,no", ("yes", "no")),
    "trust_remote_code": ("--trust-remote-code", None, True),
    "max_model_len": ("--max-model-len", "128", 128),
    "max_num_seqs": ("--max-num-seqs", "3", 3),
    "max_num_batched_tokens": ("--max-num-batched-tokens", "99", 99),
    "prefill_chunk_size": ("--prefill-chunk-size", "48", 48),
    "max_step_ms": ("--max-step-ms", "62.5", 62.5),
    "block_size": ("--block-size", "8", 8),
    "kv_cache_memory": ("--kv-cache-memory", "1GiB", 2**30),
    "kv_cache_dtype": ("--kv-cache-dtype", "fp8", "fp8"),
    "gpu_memory_utilization": ("--gpu-memory-utilization", "0.5", 0.5),
    "enforce_eager": ("--enforce-eager", None, True),
    "async_scheduling": ("--no-async-scheduling", None, False),
    "enable_prefix_caching": ("--no-enable-prefix-caching", None, False),
    "seed": ("--seed", "0", 0),
    "attention_backend": ("--attention-backend", "torch", "torch"),
    "quantization": ("--quantization", "int8", "int8"),
    "served_model_names": ("--served-model-name", "org/name", ("org/name",)),
    "accept_any_model_name": ("--accept-any-model-name", None, True),
    "host": ("--host", "::1", "::1"),
    "port": ("--port", "0", 0),
    "threads": ("--threads", "3", 3),
    "grammar_timeout": ("--grammar-timeout", "0.5", 0.5),
    "grammar_memory": ("--grammar-memory", "1GiB", 2**30),
    "grammar_cache_memory": ("--grammar-cache-memory", "1MiB", 2**20),
    "stream_interval": ("--stream-interval", "4", 4),
    "tokenizer_workers": ("--tokenizer-workers", "5", 5),
    "max_queued_requests": ("--max-queued-requests", "0", 0),
    "max_queued_prompt_tokens": ("--max-queued-prompt-tokens", "7", 7),
    "max_queued_output_tokens": ("--max-queued-output-tokens", "8", 8),
    "request_timeout": ("--request-timeout", "2.5", 2.5),
    "rate_limit": ("--rate-limit", "60,9000", Rates(60, 9000)),
    "max_body_size": ("--max-body-size", "10k", 10_000),
    "max_answer_logprobs": ("--max-answer-logprobs", "9", 9),
    "max_stored_responses": ("--max-stored-responses", "0", 0),
    "max_stored_response_bytes": ("--max-stored-response-bytes", "10k", 10_000),
    "uds": ("--uds", "/run/r.sock", "/run/r.sock"),
    "ssl_certfile": ("--ssl-certfile", "c.pem", "c.pem"),
    "ssl_keyfile": ("--ssl-keyfile", "k.pem", "k.pem"),
    "max_connections": ("--max-connections", "100", 100),
    "idle_timeout": ("--idle-timeout", "75", 75.0),
    "write_timeout": ("--write-timeout", "10", 10.0),
    "otlp_traces_endpoint": ("--otlp-traces-endpoint", "http://h/v1/traces", "http://h/v1/traces"),
    "drain_timeout": ("--drain-timeout", "0.5", 0.5),
    "keep_alive_interval": ("--keep-alive-interval", "0", 0.0),
    "api_keys": ("--api-key", "k", ("k",)),
    "api_key_file": ("--api-key-file", KEY_FILE, KeyFile.read(KEY_FILE)),
    "share_prefix_cache": ("--share-prefix-cache", None, True),
    "forwarded_allow_ips": ("--forwarded-allow-ips", "10.0.0.0/8,::1", "10.0.0.0/8,::1"),
    "allowed_hosts": ("--allowed-hosts", "llm.example", ("llm.example",)),
    "allowed_origins": ("--allowed-origins", "*", ("*",)),
    "tool_call_parser": ("--tool-call-parser", "mistral", "mistral"),
    "reasoning_parser": ("--reasoning-parser", "none", "none"),
    "clamp_max_tokens": ("--clamp-max-tokens", None, True),
    "trust_request_chat_template": ("--trust-request-chat-template", None, True),
    "strict_fields": ("--strict-fields", None, True),
    "strict_schemas": ("--strict-schemas", None, True),
    "keep_billing_header": ("--keep-billing-header", None, True),
    "log_level": ("--log-level", "debug", "debug"),
    "log_format": ("--log-format", "json", "json"),
    "request_log": ("--request-log", "5", 5),
    "log_prompts": ("--log-prompts", None, True),
    "ui": ("--no-ui", None, False),
}
"""For every field: its flag, the text of a value, and the value."""


def parse(*argv, **environ):
    return parse_settings(["serve", *argv], {f"ROSEINFER_{k}": v for k, v in environ.items()})


def value_of(settings, field):
    for owner in (settings, settings.model, settings.engine):
        if field in owner.__struct_fields__ and field not in {"model", "engine"}:
            return getattr(owner, field)
    raise AssertionError(field)


def variable(flag):
    return flag.removeprefix("--").replace("-", "_").upper()


def refused(capsys, *argv, **environ):
    """The line that reports a wrong flag or variable."""
    with pytest.raises(SystemExit) as caught:
        parse(*argv, **environ)
    assert caught.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.endswith("\n")
    assert shown.err.count("\n") == 1
    assert shown.err.startswith("roseinfer: ")
    return shown.err


def test_every_field_has_a_flag():
    fields = {*Settings.__struct_fields__, *ModelConfig.__struct_fields__}
    fields |= {*EngineConfig.__struct_fields__}
    assert fields - {"model", "engine"} == GIVEN.keys()


def test_without_flags_settings_are_the_defaults():
    assert parse() == Settings()
    assert parse().served_model_names == (MODEL_ID,)


@each("field", GIVEN)
def test_a_flag_sets_its_field(field):
    flag, text, value = GIVEN[field]
    assert value_of(Settings(), field) != value
    changed = parse(flag) if text is None else parse(flag, text)
    assert value_of(changed, field) == value
    assert type(value_of(changed, field)) is type(value)


@each("field", GIVEN)
def test_an_environment_variable_sets_its_field(field):
    flag, text, value = GIVEN[field]
    assert value_of(parse(**{variable(flag): text or "1"}), field) == value
    # An empty variable counts as unset.
    assert parse(**{variable(flag): ""}) == Settings()


@each("field", [field for field in GIVEN if GIVEN[field][1] is not None])
def test_a_flag_overrides_the_environment(field):
    flag, text, value = GIVEN[field]
    other = {
        "task": "score",
        "pooling": "cls",
        "score_tokens": "1,0",
        "device": "cuda",
        "dtype": "float16",
        "log_level": "error",
        "log_format": "text",
    }.get(field, "77")
    assert value_of(parse(flag, text, **{variable(flag): other}), field) == value


def test_repeated_flags_are_lists_joined_by_commas_in_the_environment():
    assert parse("--api-key", "a", "--api-key", "b").api_keys == ("a", "b")
    assert parse(API_KEY="a,b").api_keys == ("a", "b")
    assert parse("--api-key", "c", "--api-key", "d", API_KEY="a,b").api_keys == ("c", "d")


@pytest.mark.parametrize("word", ["1", "true", "YES", "on"])
def test_a_switch_can_be_turned_on_in_the_environment(word):
    settings = parse(TRUST_REMOTE_CODE=word, NO_ENABLE_PREFIX_CACHING=word)
    assert settings.model.trust_remote_code
    assert not settings.engine.enable_prefix_caching


@pytest.mark.parametrize("word", ["0", "False", "no", "off", ""])
def test_a_switch_can_be_left_off_in_the_environment(word):
    assert parse(TRUST_REMOTE_CODE=word, NO_ENABLE_PREFIX_CACHING=word) == Settings()


def test_the_served_name_is_the_model_unless_given():
    assert parse("org/name").model.model == "org/name"
    assert parse("org/name").served_model_names == ("org/name",)
    assert parse(MODEL="org/name").model.model == "org/name"
    assert parse("other", MODEL="org/name").model.model == "other"
    flags = ("--served-model-name", "gpt", "--served-model-name", "b")
    assert parse("org/name", *flags).served_model_names == ("gpt", "b")
    assert parse("org/name", *flags).model_name == "gpt"
    assert parse("/models/name").model_name == "name"


@each(
    ("text", "size"),
    [
        ("65536", 65536),
        ("500MB", 500_000_000),
        ("4GiB", 4 * 2**30),
        ("4gib", 4 * 2**30),
        ("1.5 GiB", 3 * 2**29),
        ("2k", 2000),
        ("2Ki", 2048),
        ("7B", 7),
    ],
)
def test_sizes_have_units(text, size):
    assert parse("--kv-cache-memory", text).engine.kv_cache_memory == size


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--no-such-flag"], "--no-such-flag"),
        (["--max-num-seq", "4"], "--max-num-seq"),  # no abbreviations
        (["a", "b"], "b"),
        (["--port"], "--port"),
        (["--port", "x"], "x is not a whole number"),
        (["--port", "65536"], "65536 is not a port"),
        (["--port", "-1"], "-1"),
        (["--max-num-seqs", "0"], "0 is not above 0"),
        (["--max-num-seqs", "9" * 20], "99 is too large"),
        (["--threads", "0"], "0 is not a number of threads, from 1 to 4096"),
        (["--threads", "99999999999"], "99999999999 is not a number of threads, from 1 to 4096"),
        (["--max-num-seqs", "many"], "many is not a whole number"),
        (["--max-queued-requests", "-1"], "-1"),
        (["--seed", "1.5"], "1.5 is not a whole number"),
        (["--device", "tpu"], "tpu is not one of auto, cpu, cuda"),
        (["--dtype", "int4"], "int4"),
        (["--log-level", "loud"], "loud"),
        (["--drain-timeout", "soon"], "soon is not a number of seconds"),
        (["--drain-timeout", "nan"], "nan is not a number of seconds"),
        (["--drain-timeout", "inf"], "inf is not a number of seconds"),
        (["--keep-alive-interval", "-1"], "-1"),
        (["--kv-cache-memory", "much"], "much is not a size such as 4GiB"),
        (["--kv-cache-memory", "GiB"], "GiB is not a size"),
        (["--kv-cache-memory", "0"], "0 is not above 0"),
        (["--kv-cache-memory", "9" * 400], "is not a size"),
        (["--kv-cache-memory", "1.2.3"], "1.2.3 is not a size"),
        (["--kv-cache-dtype", "int4"], "int4 is not one of auto, fp8, int8"),
        (["--attention-backend", "sdpa"], "sdpa is not one of auto, cpu, torch, triton"),
        (["--api-key-file", "/nowhere"], "/nowhere: No such file or directory"),
        (["--api-key-file", os.devnull], f"{os.devnull} contains no key"),
        (["--forwarded-allow-ips", "proxy"], "proxy is not an address or network"),
        (["--forwarded-allow-ips", "10.0.0.1,"], " is not an address or network"),
        (["--gpu-memory-utilization", "0"], "0 is not above 0 and at most 1"),
        (["--gpu-memory-utilization", "90"], "90 is not above 0 and at most 1"),
        (["--gpu-memory-utilization", "all"], "all is not above 0 and at most 1"),
    ],
)
def test_a_wrong_flag_is_reported_in_one_line(capsys, argv, says):
    assert says in refused(capsys, *argv)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "x"),
        ("DEVICE", "tpu"),
        ("DTYPE", "int4"),
        ("LOG_LEVEL", "loud"),
        ("TRUST_REMOTE_CODE", "maybe"),
        ("KV_CACHE_MEMORY", "much"),
    ],
)
def test_a_wrong_environment_variable_is_reported_in_one_line(capsys, name, value):
    assert value in refused(capsys, **{name: value})


@pytest.mark.parametrize("argv", [[], ["serv"], ["--port", "1"]])
def test_a_wrong_command_is_reported_in_one_line(capsys, argv):
    with pytest.raises(SystemExit) as caught:
        parse_settings(argv, {})
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_help_names_every_flag(capsys):
    with pytest.raises(SystemExit) as caught:
        parse_settings(["serve", "--help"], {})
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    for flag, _, _ in GIVEN.values():
        assert f"{flag} " in shown or f"{flag}\n" in shown
    assert "ROSEINFER_MAX_NUM_SEQS" in shown
    assert "(default: 8000)" in " ".join(shown.split())
    assert "None" not in shown


def test_help_of_the_program_names_the_commands(capsys):
    with pytest.raises(SystemExit) as caught:
        parse_command(["--help"], {})
    assert caught.value.code == 0
    assert "serve" in capsys.readouterr().out


def test_the_attention_backends_of_the_flag_are_those_that_exist():
    with pytest.raises(ModelLoadError) as caught:
        backend_factory("missing")
    assert str(caught.value).endswith(f"choose {', '.join(get_args(AttentionBackendName))}")


def test_settings_are_frozen():
    with pytest.raises(AttributeError):
        Settings().port = 1
    assert msgspec.structs.replace(Settings(), port=1).port == 1


@pytest.mark.parametrize("arguments", [["serve", "--port", "x"], ["bench", "--timeout", "x"]])
def test_a_wrong_flag_is_reported_before_torch_is_imported(arguments):
    code = (
        "import sys\n"
        "from server.cli.main import main\n"
        f"try: main({arguments})\n"
        "except SystemExit as e: code = e.code\n"
        "print(code, {'torch', 'transformers', 'litestar'} & set(sys.modules))"
    )
    done = subprocess.run(  # noqa: S603 - fixed arguments
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert done.stdout == "2 set()\n"
    assert done.stderr.count("\n") == 1


def test_help_shows_no_key_of_the_environment(capsys):
    with pytest.raises(SystemExit):
        parse_settings(["serve", "--help"], {"ROSEINFER_API_KEY": "sk-secret"})
    shown = " ".join(capsys.readouterr().out.split())
    assert "sk-secret" not in shown
    assert "may be repeated (default: from the environment)" in shown
