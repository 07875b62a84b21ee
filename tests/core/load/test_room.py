from __future__ import annotations

import pytest

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.load.room import check_room, least_nbytes

MIB = 2**20


@pytest.fixture
def machine(tmp_path):
    """A machine with 1 MiB of memory and as much swap."""
    proc = tmp_path / "machine" / "proc"
    proc.mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 4096 kB\nMemAvailable: 1024 kB\nSwapFree: 1024 kB\n")
    return proc.parent


def checkpoint(folder, size):
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(size)
    return ModelConfig(model=str(folder))


def test_weights_that_are_larger_than_memory_are_refused(machine, tmp_path):
    config = checkpoint(tmp_path / "big", 2 * MIB + 1)
    with pytest.raises(ModelLoadError, match=r"take at least 0\.0 GiB and there is memory for"):
        check_room(config, None, machine)


def test_weights_that_may_fit_are_not(machine, tmp_path):
    config = checkpoint(tmp_path / "fits", 2 * MIB)
    check_room(config, None, machine)
    larger = checkpoint(tmp_path / "larger", 8 * MIB)
    assert least_nbytes(larger, None) == 8 * MIB
    quantised = ModelConfig(model=larger.model, quantization="int8")
    check_room(quantised, None, machine)
    check_room(ModelConfig(), None, machine)
    check_room(ModelConfig(model="org/not-here"), None, machine)


def test_all_parts_of_a_gguf_file_count(tmp_path):
    for number in (1, 2):
        part = tmp_path / f"m-0000{number}-of-00002.gguf"
        part.write_bytes(bytes(100 * number))
    first = tmp_path / "m-00001-of-00002.gguf"
    assert least_nbytes(ModelConfig(model=str(first)), first) == 300
