"""Findings of the doctor: files of machines, taken ports, models that fit or do not."""

from __future__ import annotations

import json
import shutil
import socket

import pytest

from core import builtin_model
from core.contract.config import EngineConfig, ModelConfig
from core.kernels.cpu import compiler
from server.cli.doctor import checks, command, engine
from server.cli.doctor.checks import Finding
from server.cli.doctor.command import DoctorSettings
from server.cli.main import parse_command
from server.settings.settings import Settings
from tests.support.damaged import POINTER, change_tensors, without
from tests.support.pooling_models import save_encoder

GIB = 2**30


class Machine:
    """The files of a machine of 24 GiB, of which 20 are available, with one core."""

    def __init__(self, root):
        self.root = root
        self.write("proc/meminfo", f"MemTotal: {24 << 20} kB\nMemAvailable: {20 << 20} kB")
        self.write("proc/self/status", "Cpus_allowed_list:\t0")
        self.write("proc/cpuinfo", "model name\t: Some CPU\nflags\t: fpu avx2 avx512_bf16 amx_int8")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


@pytest.fixture
def files(tmp_path):
    return Machine(tmp_path)


def settings(**fields):
    return Settings(port=0, **fields)


def test_the_cpu_and_the_features_that_kernels_use(files):
    assert checks.cpu(files.root) == Finding("CPU", "ok", "Some CPU; avx2, avx512_bf16, amx_int8")
    files.write("proc/cpuinfo", "model name\t: Old CPU\nflags\t: fpu sse2")
    assert checks.cpu(files.root).state == "note"


def test_memory_is_that_of_the_control_group(files):
    assert checks.memory(files.root).text == "20.0 GiB can be taken of 24.0 GiB"
    files.write("proc/self/cgroup", "0::/")
    files.write("sys/fs/cgroup/memory.max", 4 * GIB)
    files.write("sys/fs/cgroup/memory.current", 3 * GIB)
    found = checks.memory(files.root)
    assert found.text == "1.0 GiB can be taken of 4.0 GiB"
    assert (found.state, "limit of the container" in found.advice) == ("note", True)


def test_more_threads_than_cores_are_noted(files):
    assert checks.threads(EngineConfig(threads=1), files.root).state == "ok"
    files.write("proc/self/cgroup", "0::/")
    files.write("sys/fs/cgroup/cpu.max", "150000 100000")
    found = checks.threads(EngineConfig(threads=2), files.root)
    assert found.text == "2 on 1 physical cores; the control group pays for 1.5 CPUs"
    assert (found.state, found.advice.endswith("--threads 1")) == ("note", True)


def test_nothing_is_imported_that_is_missing(monkeypatch):
    missing = Finding("packages", "problem", "torch is missing")
    monkeypatch.setattr(checks, "packages", lambda: missing)
    names = [finding.name for finding in command.examine(DoctorSettings(serve=settings()))]
    assert (names[1], names[-1]) == ("packages", "connections")


@pytest.mark.parametrize(("given", "wanted"), [("3,2", 3), ("", 1), ("many", 1)])
def test_threads_of_the_environment(files, monkeypatch, given, wanted):
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert checks.threads(EngineConfig(), files.root).text == f"{wanted} on 1 physical cores"


def test_packages_are_compared_with_what_is_needed():
    assert checks.packages("pytest").state == "ok"
    assert checks.packages("no-such-package").state == "note"
    assert checks._wrong(checks.Requirement("pytest<1")).startswith("pytest ")
    assert checks._wrong(checks.Requirement("no-such-package")) == "no-such-package is missing"
    assert checks._wrong(checks.Requirement("no-such; sys_platform == 'plan9'")) == ""


def test_downloads_need_room(tmp_path):
    found = checks.disk({"HF_HUB_CACHE": str(tmp_path / "not" / "there")})
    assert found.text.endswith(f"in {tmp_path}/not/there")
    assert "GB free" in found.text


def test_a_taken_port_is_a_problem():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        found = checks.port(Settings(port=port))
    assert found.state == "problem"
    assert f"cannot listen on 127.0.0.1:{port}: the port is in use by" in found.text
    assert checks.port(Settings(port=port)).state == "ok"


def test_a_limit_of_descriptors_is_noted():
    assert checks.connections(settings(max_connections=8)).text == "8 at once"
    assert checks.connections(settings(max_connections=10**9)).state == "note"


def test_kernels_are_compiled_or_the_reason_is_given(monkeypatch):
    monkeypatch.setattr(compiler, "COMPILERS", ("no-such-compiler",))
    found = engine.kernels()
    assert found.state == "note"
    assert "no C++ compiler (no-such-compiler) on this machine; install one" in found.text


def test_a_gpu_that_is_asked_for_must_be_there():
    assert engine.cuda(settings()).state == "ok"
    wanted = engine.cuda(settings(model=ModelConfig(device="cuda")))
    assert wanted.state in {"problem", "ok"}
    assert (wanted.state == "ok") == (engine.torch.cuda.is_available())


def test_a_model_that_fits():
    found = engine.model(settings())
    assert found.state == "ok"
    assert "roseinfer-tiny: float32, 0.01 GB of weights, context 2,048; fits with" in found.text
    assert found.text.endswith("131,072 tokens of cache")


def test_the_path_of_the_model():
    found = engine.path(settings())
    assert found == Finding("path", "ok", "whole model in one call")
    slow = engine.path(settings(engine=EngineConfig(attention_backend="torch")))
    assert slow.state == "note"
    assert slow.text.startswith("transformers' modules, not whole model in one call: attention")


def test_the_spec_of_the_model():
    found = engine.decoder(settings())
    assert found.state == "ok"
    assert found.text.startswith("described by the row of qwen3, proved exact (")
    assert found.details[:2] == ("vocab_size   2048", "hidden_size  160")
    assert "layers 0 to 5" in found.details


def test_the_verdict_is_remembered_and_made_again_if_asked():
    engine.decoder(settings())
    text = "described by the row of qwen3, proved exact (remembered)"
    assert engine.decoder(settings()).text == text
    assert engine.decoder(settings(), repeats=True).text.endswith(" s)")
    assert parse_command(["doctor", "--prove"], {}).prove


def test_a_key_of_a_model_that_no_row_knows(tmp_path, capsys):
    folder = shutil.copytree(builtin_model.path(), tmp_path / "model")
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | {"use_alibi": True}))
    found = engine.decoder(settings(model=ModelConfig(model=str(folder))))
    assert found.text.startswith("not described: use_alibi is True, which this row does not know")
    (folder / "config.json").write_bytes(POINTER)
    found = engine.decoder(settings(model=ModelConfig(model=str(folder))))
    assert (found.state, "is a pointer of Git LFS" in found.text) == ("note", True)


def test_an_encoder_is_no_decoder(tmp_path):
    save_encoder(tmp_path)
    found = engine.decoder(settings(model=ModelConfig(model=str(tmp_path))))
    assert found == Finding("decoder", "ok", "none: the task is embed")


def test_a_model_whose_context_is_lowered():
    config = EngineConfig(kv_cache_memory=2 * 2**20)
    found = engine.model(settings(engine=config))
    assert found.state == "note"
    assert "its context of 2,048" in found.advice


def test_a_model_that_cannot_be_served(tmp_path):
    found = engine.model(settings(model=ModelConfig(model=str(tmp_path))))
    assert found.state == "problem"
    config = EngineConfig(kv_cache_memory=1024)
    found = engine.model(settings(engine=config))
    assert "less than one sequence" in found.text


@pytest.mark.parametrize("task", ["auto", "generate", "embed", "score"])
@pytest.mark.parametrize("name", ["/nope", "./nope", "a/b/c", "a b", ""])
def test_a_model_that_is_not_there(name, task):
    found = engine.model(settings(model=ModelConfig(model=name, task=task)))
    assert found.state == "problem"
    reason = f"there is no model {name}: " if name else "the name of the model is empty"
    assert found.text.startswith(reason)


def test_a_model_that_lacks_a_tensor(tmp_path):
    folder = shutil.copytree(builtin_model.path(), tmp_path / "model")
    assert engine.model(settings(model=ModelConfig(model=str(folder)))).state == "ok"
    change_tensors(folder, without("layers.0.mlp.up_proj"))
    found = engine.model(settings(model=ModelConfig(model=str(folder))))
    assert found.state == "problem"
    assert "it lacks 1 parameters of a " in found.text


@pytest.mark.parametrize("name", ["tokenizer.json", "generation_config.json"])
def test_a_file_of_a_model_that_is_broken(tmp_path, name):
    folder = shutil.copytree(builtin_model.path(), tmp_path / "model")
    (folder / name).write_bytes(POINTER)
    found = engine.model(settings(model=ModelConfig(model=str(folder))))
    assert found.text.startswith(f"{folder}/{name} is a pointer of Git LFS")


def test_an_encoder_that_lacks_a_tensor(tmp_path):
    save_encoder(tmp_path)
    config = ModelConfig(model=str(tmp_path))
    assert engine.model(settings(model=config)).state == "ok"
    change_tensors(tmp_path, without("embeddings.LayerNorm"))
    found = engine.model(settings(model=config))
    assert (found.state, "it lacks 2 parameters" in found.text) == ("problem", True)
    save_encoder(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(POINTER)
    assert "is a pointer of Git LFS" in engine.model(settings(model=config)).text


def test_the_report_ends_with_code_1_if_something_stops_a_start(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        given = parse_command(["doctor", "--port", port, "--json"], {})
        assert isinstance(given, DoctorSettings)
        assert command.run(given) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    states = {finding["name"]: finding["state"] for finding in report["findings"]}
    assert states["port"] == "problem"
    assert states["model"] == "ok"
    assert command.run(parse_command(["doctor", "--port", "0"], {})) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("ok       model        roseinfer-tiny: ") for line in lines)
    assert "ok       path         whole model in one call" in lines
    assert f"{'':<22}vocab_size   2048" in lines
    assert lines[-1] == "A server would start."


def test_the_report_ends_with_what_stops_a_start(monkeypatch, capsys):
    found = [Finding(name, "problem", "x") for name in ("port", "model")]
    monkeypatch.setattr(command, "examine", lambda _settings: [*found, Finding("disk", "note", "")])
    assert command.run(DoctorSettings(serve=settings())) == 1
    assert capsys.readouterr().out.endswith("\n\nA server would not start: see port, model.\n")


def test_the_doctor_takes_the_flags_and_the_environment_of_serve():
    given = parse_command(["doctor", "m", "--threads", "3"], {"ROSEINFER_PORT": "81"})
    assert (given.serve.model.model, given.serve.engine.threads, given.serve.port) == ("m", 3, 81)
