"""Command lines, environments and request fields of the contenders."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.compare import make_parser
from benchmarks.contenders import find_contenders, find_contenders_of_file, find_model
from benchmarks.openvino import OpenVino
from benchmarks.peers import (
    BenchModel,
    LlamaServer,
    Roseinfer,
    TransformersServe,
    Vllm,
    cost_of,
)
from benchmarks.probe import num_cores
from benchmarks.process import clean_environment
from benchmarks.rounds import order_of_round
from benchmarks.scenarios import SLOTS, scenarios
from benchmarks.session import strip_paths
from benchmarks.shapes import shape_of, shape_of_file
from server.settings.settings import parse_settings
from tests.benchmarks.test_floors import TINY
from tests.support.gguf_models import tiny_model, write_tiny

CORES = str(num_cores())


@pytest.fixture
def model(tmp_path):
    return BenchModel(name="gpt2", directory=Path("/models/gpt2"), shape=TINY, gguf=tmp_path)


def contenders(*arguments, gemm=None):
    return find_contenders(make_parser().parse_args(arguments), gemm or {})


def test_the_server_accepts_the_command_line_of_roseinfer(model):
    _, _, _, *flags = Roseinfer().command(model, 1234)
    settings = parse_settings(flags, {})
    assert settings.model.model == "/models/gpt2"
    assert (settings.model.dtype, settings.port) == ("bfloat16", 1234)
    assert Roseinfer().model_name(model) == settings.model_name


def test_names_and_commands_of_the_variants(model):
    int8 = Roseinfer(quantization="int8")
    assert int8.name == "roseinfer int8"
    assert "--quantization" in int8.command(model, 1)
    inside = Roseinfer(is_in_process=True)
    assert inside.name == "roseinfer in process"
    assert inside.command(model, 1)[2] == "benchmarks.in_process"
    assert "--port" not in inside.command(model, 1)
    assert Roseinfer(dtype="float32").name == "roseinfer float32"
    assert int8.is_variant
    assert not Roseinfer().is_variant


def test_the_type_of_the_kv_cache_makes_a_variant(model):
    ours = Roseinfer(kv_cache="int8")
    assert (ours.name, ours.weights, ours.is_variant) == ("roseinfer int8 KV", "bfloat16", True)
    settings = parse_settings(ours.command(model, 1234)[3:], {})
    assert settings.engine.kv_cache_dtype == "int8"
    assert cost_of(ours, model).kv_bytes == 1 + 4 / 8
    assert cost_of(Roseinfer(), model).kv_bytes == 2


def test_only_long_contexts_run_with_a_smaller_cache():
    names = [c.name for c in contenders("--variant-scenarios", "s1,context-8k")]
    assert "roseinfer int8 KV" in names
    assert "roseinfer int8 KV" not in [c.name for c in contenders()]


def test_llama_server_needs_a_gguf_file_and_gets_64_slots(model):
    llama = LlamaServer(program=Path("/bin/llama-server"))
    assert llama.missing(model) is not None
    model.gguf_file("bf16").touch()
    assert llama.missing(model) is None
    command = " ".join(llama.command(model, 7))
    assert f"-m {model.gguf}/gpt2-bf16.gguf --host 127.0.0.1 --port 7" in command
    assert f"-t {CORES} -tb {CORES} --parallel {SLOTS} -c {SLOTS * 1024}" in command
    assert LlamaServer(program=Path("x"), kind="q8_0").missing(model) is not None


def test_a_long_prompt_has_a_server_with_few_long_slots(model):
    long_model = replace(model, shape=replace(TINY, max_model_len=40960))
    long_model = long_model.with_room(scenarios(40960)["long"].room)
    command = " ".join(LlamaServer(program=Path("x")).command(long_model, 7))
    assert "--parallel 2 -c 12800" in command
    command = " ".join(Vllm(program=Path("x")).command(long_model, 7))
    assert "--max-num-seqs 2 --max-model-len 6400" in command


def test_long_contexts_have_eight_slots(model):
    long_model = replace(model, shape=replace(TINY, max_model_len=40960))
    long_model = long_model.with_room(scenarios(40960)["context-32k"].room)
    command = " ".join(LlamaServer(program=Path("x")).command(long_model, 7))
    assert f"--parallel 8 -c {8 * 32_256} " in command
    command = " ".join(Vllm(program=Path("x")).command(long_model, 7))
    assert "--max-num-seqs 8 --max-model-len 32256" in command


def test_gguf_files_are_served_by_both(model):
    ours = Roseinfer(gguf="q4_k_m")
    assert (ours.name, ours.weights, ours.is_variant) == ("roseinfer q4_k_m", "q4_k_m", True)
    assert ours.missing(model) is not None
    file = model.gguf_file("q4_k_m")
    file.write_bytes(bytes(4200))
    assert ours.missing(model) is None
    assert ours.command(model, 7)[4] == str(file)
    assert "--dtype" not in ours.command(model, 7)
    assert ours.model_name(model) == "gpt2-q4_k_m"
    assert cost_of(ours, model).weight_bytes == pytest.approx(4200 / 7000)


def test_a_gguf_file_is_a_model_of_two_contenders(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    file = write_tiny(tmp_path / "real-Q4_1.gguf", "llama")
    options = make_parser().parse_args(["--llama-server", "x", "--llama-flags=--no-repack"])
    model = find_model(str(file), options)
    ours, llama = find_contenders_of_file(options)
    assert model.name == "real-Q4_1"
    assert (ours.name, llama.name) == ("roseinfer gguf", "llama.cpp gguf")
    for contender in (ours, llama):
        assert contender.missing(model) is None
        assert not contender.is_variant
        assert str(file) in contender.command(model, 7)
        matrices = model.shape.layer_params + model.shape.head_params
        assert cost_of(contender, model).weight_bytes == file.stat().st_size / matrices
    assert ours.model_name(model) == "real-Q4_1"
    assert llama.command(model, 7)[-1] == "--no-repack"
    assert "--dtype" not in ours.command(model, 7)


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2"])
def test_the_shape_of_a_gguf_file_is_that_of_its_model(family, tmp_path):
    tiny_model(family).config.save_pretrained(tmp_path)
    file = write_tiny(tmp_path / "m.gguf", family)
    assert shape_of_file(file) == shape_of(tmp_path)


def test_openvino_runs_in_a_process_of_jobs(model, tmp_path):
    peer = OpenVino(python=Path("/venv/bin/python"))
    assert peer.missing(model) == "--openvino-models is not given"
    model = replace(model, openvino=tmp_path)
    assert peer.missing(model) == f"{tmp_path}/gpt2-fp16 does not exist"
    (tmp_path / "gpt2-fp16").mkdir()
    assert peer.missing(model) is None
    command = " ".join(peer.command(model, 7))
    assert command.startswith("/venv/bin/python -m benchmarks.openvino_child")
    assert f"{tmp_path}/gpt2-fp16 --max-model-len 1024 --slots 64 --threads {CORES}" in command
    assert (peer.name, peer.weights, peer.is_variant) == ("OpenVINO bf16", "bfloat16", False)
    int8 = OpenVino(python=Path("x"), kind="int8")
    assert (int8.name, int8.weights, int8.is_variant) == ("OpenVINO int8", "int8", True)


def test_requests_to_transformers_have_no_ignore_eos(model):
    peer = TransformersServe(program=Path("/venv/bin/transformers"), dtype="float32")
    assert "ignore_eos" not in peer.extra
    assert peer.command(model, 7)[:3] == ["/venv/bin/transformers", "serve", "/models/gpt2"]
    assert "--continuous-batching" in peer.command(model, 7)
    assert peer.environment(model)["OMP_NUM_THREADS"] == CORES
    assert peer.model_name(model) == "/models/gpt2"


def test_vllm_runs_threads_on_every_core(model):
    peer = Vllm(program=Path("/venv/bin/vllm"))
    assert peer.environment(model)["VLLM_CPU_OMP_THREADS_BIND"] == f"0-{num_cores() - 1}"
    assert peer.environment(model)["VLLM_CPU_KVCACHE_SPACE"] == "4"
    assert peer.extra["ignore_eos"] is True


def test_the_cost_model_follows_the_type_of_the_weights(model):
    assert cost_of(Roseinfer(), model).weight_bytes == 2
    assert cost_of(Roseinfer(quantization="int8"), model).weight_bytes == 1
    assert cost_of(LlamaServer(program=Path("x"), kind="q8_0"), model).weight_bytes == 34 / 32
    cost = cost_of(TransformersServe(program=Path("x"), dtype="float32"), model)
    assert (cost.weight_bytes, cost.kv_bytes) == (4, 4)


def test_servers_do_not_inherit_settings_of_this_process(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("ROSEINFER_PORT", "1")
    assert not {"OMP_NUM_THREADS", "ROSEINFER_PORT"} & clean_environment().keys()
    assert "PATH" in clean_environment()


def test_peers_on_the_command_line_become_contenders(monkeypatch, tmp_path):
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
    found = contenders("--openvino-python", "p", "--gguf", str(tmp_path), "--llama-server", "x")
    assert [c.name for c in found][1:3] == ["llama.cpp bf16", "OpenVINO bf16"]
    assert [c.name for c in found][-1] == "OpenVINO int8"
    assert "roseinfer q4_k_m" not in [c.name for c in found]
    (tmp_path / "gpt2-q4_k_m.gguf").touch()
    found = contenders("--llama-server", "x", "--gguf", str(tmp_path))
    assert [c.name for c in found][-2:] == ["roseinfer q4_k_m", "llama.cpp q4_k_m"]
    chosen = contenders("--contenders", "roseinfer,roseinfer int8")
    assert [c.name for c in chosen] == ["roseinfer", "roseinfer int8"]


def test_transformers_runs_in_the_type_with_the_faster_products():
    found = contenders("--transformers-bin", "y", gemm={"bfloat16": 12, "float32": 150})
    assert "transformers serve float32" in [c.name for c in found]


def test_published_commands_contain_no_absolute_paths():
    text = strip_paths(
        "--gguf /a/b/c.d --out x/y.jsonl /usr/bin/c++ failed: /q/linear.cpp:96:29 1/2 http://h/v1/x"
    )
    assert text == "--gguf c.d --out x/y.jsonl c++ failed: linear.cpp:96:29 1/2 http://h/v1/x"


def test_every_other_round_is_reversed():
    assert [order_of_round(["a", "b"], i) for i in range(3)] == [["a", "b"], ["b", "a"], ["a", "b"]]
