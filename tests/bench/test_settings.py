from pathlib import Path

import pytest

from bench.flags import BENCH_GROUPS
from bench.settings import BenchSettings, EngineTarget, ServerTarget, model_cache
from server.cli.main import parse_command
from server.settings.settings import SERVE_GROUPS, Settings
from tests.support.each import each

URL = ("--base-url", "http://127.0.0.1:1/v1")


def parse(*argv, **environ):
    return parse_command(["bench", *argv], environ)


def refused(capsys, *argv):
    with pytest.raises(SystemExit) as caught:
        parse(*argv)
    assert caught.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert shown.err.endswith("(try roseinfer bench --help)\n")
    return shown.err


def test_without_flags_settings_are_the_defaults():
    assert parse() == BenchSettings()
    assert parse(*URL).target == ServerTarget(base_url=URL[1])


def test_each_command_has_its_own_settings():
    assert isinstance(parse_command(["serve"], {}), Settings)
    assert isinstance(parse_command(["bench"], {}), BenchSettings)


@pytest.mark.slow
@each(
    ("argv", "path", "value"),
    [
        (("--num-requests", "3"), "workload.num_requests", 3),
        (("--prompt", "x"), "workload.text", "x"),
        (("--prompt", "x", "--prompt-repeats", "2"), "workload.repeats", 2),
        (("--unique-prompts",), "workload.unique", True),
        (("--dataset", "f"), "workload.dataset", Path("f")),
        (("--prompt-len", "7"), "workload.length", (7, 7)),
        (("--prompt-len", "2-5"), "workload.length", (2, 5)),
        (("--shared-prefix-len", "9"), "workload.shared_prefix_len", 9),
        (("--max-new-tokens", "4"), "workload.max_new_tokens", 4),
        (("--seed", "-5"), "workload.seed", -5),
        (("--submit-interval-ms", "20"), "pace.interval", 0.02),
        (("--request-rate", "2.5"), "pace.rate", 2.5),
        (
            ("--submit-interval-ms", "1", "--submit-schedule", "relative"),
            "pace.schedule",
            "relative",
        ),
        (("--concurrency", "8"), "pace.concurrency", 8),
        (("--no-stop-on-eos",), "sampling.ignore_eos", True),
        (("--do-sample",), "sampling.do_sample", True),
        (("--do-sample", "--temperature", "0.5"), "sampling.temperature", 0.5),
        (("--do-sample", "--top-k", "5"), "sampling.top_k", 5),
        (("--do-sample", "--top-p", "0.9"), "sampling.top_p", 0.9),
        (("--stream-interval", "4"), "sampling.stream_interval", 4),
        (("--chat",), "chat", True),
        (("--warmup-runs", "0"), "warmup_runs", 0),
        (("--repeat-runs", "3"), "repeat_runs", 3),
        (("--json", "f"), "json", Path("f")),
        (("--model", "m"), "target.model.model", "m"),
        (("--random-model", "tiny"), "target.random_model", "tiny"),
        (("--random-model", "tiny", "--make-only"), "target.make_only", True),
        (("--device", "cpu"), "target.model.device", "cpu"),
        (("--dtype", "float32"), "target.model.dtype", "float32"),
        (("--max-model-len", "99"), "target.engine.max_model_len", 99),
        (("--max-num-seqs", "9"), "target.engine.max_num_seqs", 9),
        (("--max-num-batched-tokens", "99"), "target.engine.max_num_batched_tokens", 99),
        (("--prefill-chunk-size", "64"), "target.engine.prefill_chunk_size", 64),
        (("--block-size", "8"), "target.engine.block_size", 8),
        (("--kv-cache-memory", "1KiB"), "target.engine.kv_cache_memory", 1024),
        (("--no-enable-prefix-caching",), "target.engine.enable_prefix_caching", False),
        (("--config", "c"), "target.model.config", "c"),
        (("--tokenizer", "t"), "target.model.tokenizer", "t"),
        (("--chat-template", "c"), "target.model.chat_template", "c"),
        (("--quantization", "int8"), "target.model.quantization", "int8"),
        (("--trust-remote-code",), "target.model.trust_remote_code", True),
        (("--kv-cache-dtype", "fp8"), "target.engine.kv_cache_dtype", "fp8"),
        (("--gpu-memory-utilization", "0.5"), "target.engine.gpu_memory_utilization", 0.5),
        (("--enforce-eager",), "target.engine.enforce_eager", True),
        (("--no-async-scheduling",), "target.engine.async_scheduling", False),
        (("--attention-backend", "torch"), "target.engine.attention_backend", "torch"),
        (("--prefill-max-batch-size", "2"), "target.prefill_max_batch_size", 2),
        (("--pretok",), "target.pretok", True),
        (("--tokenizer-workers", "3"), "target.tokenizer_workers", 3),
        (("--profile",), "target.profile", True),
        ((*URL, "--model", "m"), "target.model", "m"),
        ((*URL, "--api-key", "k"), "target.api_key", "k"),
        ((*URL, "--timeout", "5"), "target.timeout", 5.0),
    ],
)
def test_a_flag_sets_its_field(argv, path, value):
    def get(settings):
        for name in path.split("."):
            settings = getattr(settings, name)
        return settings

    assert get(parse(*argv)) == value
    default = parse(*URL) if argv[0] == URL[0] else parse()
    assert get(default) != value


@pytest.mark.parametrize(
    "argv",
    [
        ("--random-model", "tiny"),
        ("--device", "cpu"),
        ("--dtype", "float32"),
        ("--max-model-len", "9"),
        ("--max-num-seqs", "9"),
        ("--max-num-batched-tokens", "9"),
        ("--prefill-chunk-size", "9"),
        ("--block-size", "9"),
        ("--kv-cache-memory", "9"),
        ("--no-enable-prefix-caching",),
        ("--kv-cache-dtype", "fp8"),
        ("--attention-backend", "torch"),
        ("--tokenizer", "t"),
        ("--make-only",),
        ("--prefill-max-batch-size", "9"),
        ("--pretok",),
        ("--tokenizer-workers", "9"),
        ("--profile",),
    ],
)
def test_engine_flags_are_refused_with_a_server(capsys, argv):
    assert f"{argv[0]} has a meaning only in process" in refused(capsys, *URL, *argv)


@pytest.mark.parametrize("argv", [("--api-key", "k"), ("--timeout", "9")])
def test_server_flags_are_refused_in_process(capsys, argv):
    assert f"{argv[0]} has a meaning only with --base-url" in refused(capsys, *argv)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--prompt", "x", "--prompt-len", "3"), "--prompt and --prompt-len"),
        (("--prompt", "x", "--dataset", "f"), "--prompt and --dataset"),
        (("--submit-interval-ms", "1", "--request-rate", "1"), "cannot be given together"),
        (("--model", "m", "--random-model", "tiny"), "--model and --random-model"),
        (("--pretok", "--tokenizer-workers", "2"), "--pretok and --tokenizer-workers"),
        (("--unique-prompts", "--shared-prefix-len", "2"), "--shared-prefix-len"),
        (("--prompt-repeats", "2"), "no meaning without --prompt"),
        (("--submit-schedule", "relative"), "without --submit-interval-ms or --request-rate"),
        (("--temperature", "1"), "without --do-sample"),
        (("--top-k", "1"), "without --do-sample"),
        (("--top-p", "1"), "without --do-sample"),
        (("--make-only",), "without --random-model"),
        (("--prompt-len", "0"), "0 is not above 0"),
        (("--prompt-len", "5-2"), "5-2 is not a range"),
        (("--prompt-len", "2-"), "not a whole number"),
        (("--request-rate", "0"), "0 is not above 0"),
        (("--request-rate", "nan"), "nan is not a number"),
        (("--submit-interval-ms", "-1"), "-1"),
        (("--do-sample", "--top-p", "1.5"), "not between 0 and 1"),
        (("--random-model", "gpt5"), "gpt5 is not one of gpt2"),
        (("--submit-schedule", "never"), "never is not one of"),
        (("--num-request", "3"), "--num-request"),
        (("x",), "x"),
    ],
)
def test_a_wrong_combination_is_reported_in_one_line(capsys, argv, says):
    assert says in refused(capsys, *argv)


def test_bench_ignores_the_environment_variables_of_serve():
    assert parse(ROSEINFER_DTYPE="float16", ROSEINFER_MODEL="m") == BenchSettings()
    assert isinstance(parse().target, EngineTarget)


def test_help_names_flags_and_no_none(capsys):
    with pytest.raises(SystemExit) as caught:
        parse("--help")
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert "--prefill-max-batch-size" in shown
    assert "None" not in shown


@pytest.mark.parametrize(
    ("alias", "flag"),
    [
        (("--max-batch-size", "9"), ("--max-num-seqs", "9")),
        (("--no-prefix-cache",), ("--no-enable-prefix-caching",)),
        (("--tokenize-workers", "9"), ("--tokenizer-workers", "9")),
    ],
)
@pytest.mark.parametrize("command", ["serve", "bench"])
def test_an_alias_does_the_same_and_is_in_the_help(capsys, command, alias, flag):
    settings = parse_command([command, *alias], {})
    assert settings == parse_command([command, *flag], {})
    assert settings != parse_command([command], {})
    with pytest.raises(SystemExit):
        parse_command([command, "--help"], {})
    shown = capsys.readouterr().out
    assert f"alias: {alias[0]}" in " ".join(shown.split())
    assert f"\n  {alias[0]}" not in shown


def test_an_alias_is_refused_by_the_name_of_its_flag(capsys):
    assert "--max-num-seqs has a meaning only in process" in refused(
        capsys, *URL, "--max-batch-size", "9"
    )


def flags_of(groups):
    return {flag.name: (flag, flag.default_of(g.structs)) for g in groups for flag in g.flags}


def test_flags_of_both_commands_are_defined_once():
    serve, bench = flags_of(SERVE_GROUPS), flags_of(BENCH_GROUPS)
    different = {name for name in serve.keys() & bench.keys() if serve[name] != bench[name]}
    # a model to load or a model id; a key to require or to send; what is seeded; over HTTP the
    # server's default of the interval
    assert different == {"model", "api-key", "seed", "stream-interval"}
    assert serve["stream-interval"][0].help == bench["stream-interval"][0].help
    assert {"max-num-seqs", "tokenizer-workers", "attention-backend"} <= serve.keys() & bench.keys()


def test_no_two_flags_of_a_command_set_the_same_field():
    for groups in (SERVE_GROUPS, BENCH_GROUPS):
        dests = [flag.dest for group in groups for flag in group.flags]
        assert len(dests) == len(set(dests))


def test_the_folder_of_random_models_is_in_the_cache_directory():
    assert model_cache({"XDG_CACHE_HOME": "/x"}) == Path("/x/roseinfer/models")
    assert model_cache({"XDG_CACHE_HOME": ""}) == Path.home() / ".cache/roseinfer/models"
