"""Measuring an engine for the simulation, with a tiny model."""

from __future__ import annotations

import sys

import pytest
from transformers import AutoConfig

from bench import random_model
from benchmarks.fleet import __main__ as program
from benchmarks.fleet import measure as script
from benchmarks.fleet.machine import read_machine
from core.run.keys_per_row import keys_per_row


@pytest.mark.slow
def test_what_is_measured_can_be_simulated_and_compared(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(random_model, "model_cache", lambda: tmp_path)
    out = tmp_path / "tiny-0.1b"
    flags = ["--random-model", "tiny", "--dtype", "float32", "--max-num-seqs", "8"]
    flags += ["--kv-cache-memory", str(2**26), "--scenarios", "s1,s4"]
    monkeypatch.setattr(sys, "argv", ["measure", str(out), *flags])
    script.main()
    model = random_model.cached_random_model("tiny")
    machine = read_machine(tmp_path / "tiny-0.1b.json")
    assert [step.streams for step in machine.steps if step.streams][:4] == [1, 2, 4, 8]
    assert max(step.prompt for step in machine.steps) == machine.max_num_batched_tokens
    assert all(step.ms > 0 for step in machine.steps)
    assert machine.max_num_seqs == 8
    assert machine.keys_per_row == keys_per_row(AutoConfig.from_pretrained(model))
    capsys.readouterr()
    paths = ["--machine", f"{out}.json"]
    paths += ["--results", f"{out}.jsonl", "--model", "tiny"]
    monkeypatch.setattr(sys, "argv", ["fleet", "validate", *paths])
    monkeypatch.setattr(program.gc, "disable", lambda: None)
    program.main()
    text = capsys.readouterr().out
    assert "| s4 | num_cached_tokens |" in text
    assert "| s1 | tpot_p50_ms |" in text
