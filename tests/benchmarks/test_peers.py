"""What peers are started with and asked for."""

from pathlib import Path

import pytest

from benchmarks.compare import _parser as compare_parser
from benchmarks.compare import bare, find_contenders, in_turn
from benchmarks.limits import num_cores
from benchmarks.peers import (
    SLOTS,
    BenchModel,
    LlamaServer,
    Roseinfer,
    TransformersServe,
    Vllm,
    clean_environment,
    cost_of,
)
from server.settings import parse_settings
from tests.benchmarks.test_floors import TINY

CORES = str(num_cores())


@pytest.fixture
def model(tmp_path):
    return BenchModel(name="gpt2", directory=Path("/models/gpt2"), shape=TINY, gguf=tmp_path)


def contenders(*arguments, gemm=None):
    return find_contenders(compare_parser().parse_args(arguments), gemm or {})


def test_our_own_command_is_understood(model):
    _, _, _, *flags = Roseinfer().command(model, 1234)
    settings = parse_settings(flags, {})
    assert settings.model.model == settings.served_model_name == "/models/gpt2"
    assert (settings.model.dtype, settings.port) == ("bfloat16", 1234)
    assert Roseinfer().model_name(model) == settings.served_model_name


def test_our_variants(model):
    int8 = Roseinfer(quantization="int8")
    assert int8.name == "roseinfer int8"
    assert "--quantization" in int8.command(model, 1)
    inside = Roseinfer(is_in_process=True)
    assert inside.name == "roseinfer in process"
    assert inside.command(model, 1)[2] == "benchmarks.in_process"
    assert "--port" not in inside.command(model, 1)
    assert Roseinfer(dtype="float32").name == "roseinfer float32"
    assert int8.is_side_show
    assert not Roseinfer().is_side_show


def test_llama_server(model):
    llama = LlamaServer(program=Path("/bin/llama-server"))
    assert llama.missing(model) is not None
    model.gguf_file("bf16").touch()
    assert llama.missing(model) is None
    command = " ".join(llama.command(model, 7))
    assert f"-m {model.gguf}/gpt2-bf16.gguf --host 127.0.0.1 --port 7" in command
    assert f"-t {CORES} -tb {CORES} --parallel {SLOTS} -c {SLOTS * 1024}" in command
    assert LlamaServer(program=Path("x"), kind="q8_0").missing(model) is not None


def test_transformers_is_not_asked_to_ignore_the_end(model):
    peer = TransformersServe(program=Path("/venv/bin/transformers"), dtype="float32")
    assert peer.extra == {"temperature": 0.0}
    assert peer.command(model, 7)[:3] == ["/venv/bin/transformers", "serve", "/models/gpt2"]
    assert "--continuous-batching" in peer.command(model, 7)
    assert peer.environment(model)["OMP_NUM_THREADS"] == CORES
    assert peer.model_name(model) == "/models/gpt2"


def test_vllm_gets_every_core(model):
    peer = Vllm(program=Path("/venv/bin/vllm"))
    assert peer.environment(model)["VLLM_CPU_OMP_THREADS_BIND"] == f"0-{num_cores() - 1}"
    assert peer.environment(model)["VLLM_CPU_KVCACHE_SPACE"] == "4"
    assert peer.extra["ignore_eos"] is True


def test_weights_decide_the_floor(model):
    assert cost_of(Roseinfer(), model).weight_bytes == 2
    assert cost_of(Roseinfer(quantization="int8"), model).weight_bytes == 1
    assert cost_of(LlamaServer(program=Path("x"), kind="q8_0"), model).weight_bytes == 34 / 32
    cost = cost_of(TransformersServe(program=Path("x"), dtype="float32"), model)
    assert (cost.weight_bytes, cost.kv_bytes) == (4, 4)


def test_settings_of_this_shell_do_not_reach_the_servers(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("ROSEINFER_PORT", "1")
    assert not {"OMP_NUM_THREADS", "ROSEINFER_PORT"} & clean_environment().keys()
    assert "PATH" in clean_environment()


def test_named_peers_take_part(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert [c.name for c in contenders()] == ["roseinfer", "roseinfer int8", "roseinfer in process"]
    found = contenders("--llama-server", "x", "--transformers-bin", "y", "--vllm-bin", "z")
    assert [c.name for c in found] == [
        "roseinfer",
        "llama.cpp bf16",
        "vLLM",
        "transformers serve bfloat16",
        "roseinfer int8",
        "roseinfer in process",
        "llama.cpp q8_0",
    ]
    chosen = contenders("--contenders", "roseinfer,roseinfer int8")
    assert [c.name for c in chosen] == ["roseinfer", "roseinfer int8"]


def test_transformers_runs_in_the_type_that_is_fast_here():
    found = contenders("--transformers-bin", "y", gemm={"bfloat16": 12, "float32": 150})
    assert "transformers serve float32" in [c.name for c in found]


def test_results_name_no_folders():
    text = bare(
        "--gguf /a/b/c.d --out x/y.jsonl /usr/bin/c++ failed: /q/linear.cpp:96:29 1/2 http://h/v1/x"
    )
    assert text == "--gguf c.d --out x/y.jsonl c++ failed: linear.cpp:96:29 1/2 http://h/v1/x"


def test_rounds_go_there_and_back():
    assert [in_turn(["a", "b"], i) for i in range(3)] == [["a", "b"], ["b", "a"], ["a", "b"]]
