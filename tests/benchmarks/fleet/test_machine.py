"""Step times, and their fit to measured steps."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from benchmarks.fleet.machine import Machine, Step, errors, fit, read_machine
from benchmarks.fleet.step_times import PiecewiseLinear, StepTimes, pairs_of

ROOT = Path(__file__).parents[3]
MACHINES = sorted((ROOT / "benchmarks/fleet/machines").glob("*.json"))
TIMES = StepTimes(
    PiecewiseLinear((1, 8, 64), (0.010, 0.017, 0.073)),
    PiecewiseLinear((16, 256), (0.040, 0.280)),
    per_context=1e-5,
    per_pair=1e-7,
)


def test_a_step_costs_its_tokens_and_what_they_attend_to():
    line = TIMES.streams
    assert line.at(1) == line.at(0) == 0.010
    assert line.at(4) == pytest.approx(0.013)
    assert line.at(36) == pytest.approx(0.045)
    assert line.at(128) == pytest.approx(0.137)  # the last piece goes on
    assert pairs_of(0, 3) == 1 + 2 + 3
    assert pairs_of(3, 5) == 4 + 5
    assert TIMES.of_step(8, 0, 100, 0) == pytest.approx(0.017 + 1e-3)
    assert TIMES.of_step(2, 14, 100, 21) == pytest.approx(0.040 + 1e-3 + 2.1e-6)


def test_a_run_lasts_as_long_as_its_steps():
    rng = random.Random(1)
    for _ in range(50):
        number, streams, context = rng.randint(1, 40), rng.randint(1, 64), rng.randint(1, 9000)
        steps = [TIMES.of_step(streams, 0, context + streams * i, 0) for i in range(number)]
        assert TIMES.of_run(number, streams, context) == pytest.approx(sum(steps))
        seconds = rng.uniform(0, sum(steps))
        fewest = next(n for n in range(1, number + 1) if sum(steps[:n]) >= seconds - 1e-12)
        assert TIMES.steps_in(seconds, number, streams, context) == fewest


def test_the_fit_finds_the_times_that_made_the_steps():
    shapes = [(1, 0, 0), (8, 0, 0), (64, 0, 0), (1, 4000, 0), (8, 500, 0)]
    steps = [
        Step(streams=n, context=c, ms=1e3 * TIMES.of_step(n, 0, n * c, 0)) for n, c, _ in shapes
    ]
    steps += [
        Step(prompt=n, start=at, ms=1e3 * TIMES.of_step(0, n, 0, pairs_of(at, at + n)))
        for n, at in ((16, 0), (256, 0), (64, 4096), (32, 1024))
    ]
    found = fit(steps, (1, 8, 64), (16, 256))
    assert found.streams.seconds == pytest.approx(TIMES.streams.seconds)
    assert found.prompts.seconds == pytest.approx(TIMES.prompts.seconds)
    assert found.per_context == pytest.approx(TIMES.per_context)
    assert found.per_pair == pytest.approx(TIMES.per_pair)


def test_no_part_of_a_fit_is_negative():
    """Noise that says that long contexts are faster must not make steps of negative length."""
    steps = [Step(streams=1, context=10, ms=9), Step(streams=1, context=9000, ms=8)]
    steps += [Step(streams=8, ms=12), Step(prompt=64, ms=30), Step(prompt=128, ms=25)]
    found = fit(steps, (1, 8), (64, 128))
    assert found.per_context == 0
    assert found.per_pair >= 0
    for line in (found.streams, found.prompts):
        assert list(line.seconds) == sorted(line.seconds)
        assert line.seconds[0] > 0


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: path.stem)
def test_the_committed_machines_are_read_and_fit_their_steps(path):
    machine = read_machine(path)
    assert machine.num_blocks * machine.block_size >= machine.max_num_seqs
    found = [abs(error) for _, error in errors(machine)]
    assert sum(found) / len(found) < 0.12


def test_an_unknown_field_of_a_file_is_refused(tmp_path):
    machine = Machine(
        name="",
        source="",
        steps=(Step(ms=1),),
        stream_knots=(1,),
        prompt_knots=(1,),
        kv_tokens=64,
        max_model_len=64,
        max_step_ms=50,
        keys_per_row=None,
    )
    path = tmp_path / "m.json"
    path.write_bytes(msgspec.json.encode(machine))
    assert read_machine(path) == machine
    path.write_bytes(path.read_bytes().replace(b'"kv_tokens"', b'"kv_blocks"'))
    with pytest.raises(msgspec.ValidationError):
        read_machine(path)


@pytest.mark.parametrize("name", ["max_step_ms", "keys_per_row"])
@pytest.mark.parametrize("path", MACHINES, ids=lambda path: path.stem)
def test_a_file_says_how_long_steps_could_be_and_what_attention_counts(path, name, tmp_path):
    """A default would change what was measured when the server's changes."""
    content = msgspec.json.decode(path.read_bytes())
    del content[name]
    other = tmp_path / "m.json"
    other.write_bytes(msgspec.json.encode(content))
    with pytest.raises(msgspec.ValidationError, match=name):
        read_machine(other)
