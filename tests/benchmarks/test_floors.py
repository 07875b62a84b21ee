"""Floors of models small enough for arithmetic by hand."""

import json

import pytest

from benchmarks.floors import Cost, Machine, Work, floors
from benchmarks.probe import Rates, machine_of
from benchmarks.scenarios import scenarios
from benchmarks.shapes import Shape, shape_of

TINY = Shape(
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    layer_matrices={"a": (10, 100), "b": (50, 20)},
    head_matrix=(300, 10),
    max_model_len=1024,
)
COST = Cost(shape=TINY, weight_bytes=2, kv_bytes=2)

GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}
QWEN3 = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
}


def shape(tmp_path, config):
    (tmp_path / "config.json").write_text(json.dumps(config))
    return shape_of(tmp_path)


def test_parameters_and_cache_elements_of_a_shape():
    assert TINY.layer_params == 2 * (1000 + 1000)
    assert TINY.head_params == 3000
    assert TINY.kv_elements == 2 * 2 * 2 * 8
    assert TINY.attention_flops == 4 * 2 * 4 * 8


def test_parameters_of_known_models(tmp_path):
    gpt2 = shape(tmp_path, GPT2 | {"vocab_size": 50257})
    # 124,439,808 parameters without positions, biases and norms
    assert gpt2.layer_params + gpt2.head_params == 124_439_808 - 1024 * 768 - 121_344
    assert gpt2.kv_elements == 2 * 12 * 768
    qwen3 = shape(tmp_path, QWEN3 | {"vocab_size": 151936})
    # 596,049,920 parameters without the norms
    assert qwen3.layer_params + qwen3.head_params == 596_049_920 - 65_536
    assert qwen3.max_model_len == 40960


def test_the_slower_of_memory_and_arithmetic_decides():
    work = Work(100, 1000)
    assert work.seconds(Machine(read_rate=10, operation_rate=1000)) == 10
    assert work.seconds(Machine(read_rate=100, operation_rate=100)) == 10
    assert (work + work * 2) == Work(300, 3000)


@pytest.mark.parametrize(
    ("weights", "rate"),
    [("float32", 470), ("bfloat16", 470), ("int8", 940), ("q8_0", 940), ("q4_k_m", 940)],
)
def test_arithmetic_is_that_of_the_fastest_products_with_such_weights(weights, rate):
    products = {"float32": 236.0, "bfloat16": 470.0, "int8": 940.0}
    rates = Rates(threads=2, read_gbs=37, fma_gflops=235, method="compiled", products=products)
    slower = {"float32": 150.0, "bfloat16": 410.0, "int8": 590.0}
    assert machine_of(rates, slower, weights).operation_rate == rate * 1e9
    rates = Rates(threads=2, read_gbs=37, fma_gflops=235, method="torch")
    assert machine_of(rates, products, weights).operation_rate == rate * 1e9


def test_a_decode_step_reads_shared_keys_once():
    assert COST.weights() == Work(2 * 7000, 0)
    step = COST.decode(3, context=5, shared=7)
    assert step.num_bytes == (3 * 5 + 7) * 64 * 2
    assert step.operations == 3 * 2 * 7000 + 3 * 12 * 256


def test_a_prefill_computes_one_logits_row():
    work = COST.prefill(4, before=10)
    assert work.num_bytes == 10 * 64 * 2
    assert work.operations == 2 * (4 * 4000 + 3000) + (4 * 10 + 1 + 2 + 3 + 4) * 256


def test_two_chunks_cost_one_prefill_and_one_more_logits_row():
    whole = COST.prefill(10).operations
    parts = COST.prefill(6).operations + COST.prefill(4, before=6).operations
    assert parts == whole + 2 * 3000


@pytest.fixture
def reading():
    """A machine without limit to its arithmetic."""
    return Machine(read_rate=1e6, operation_rate=1e18)


def test_floors_of_one_stream(reading):
    found = floors(scenarios(1024)["s1"], COST, reading)
    assert found["tpot_p50_ms"] == pytest.approx((14_000 + (32 + 64) * 128) / 1e3)
    assert found["ttft_p50_ms"] == pytest.approx(14)
    steps = 4 * (128 * 14_000 + 127 * (32 + 64) * 128)
    assert found["tok_s"] == pytest.approx(4 * 128 / (steps / 1e6))


def test_a_closed_load_reads_the_weights_once_a_step(reading):
    found = floors(scenarios(1024)["s3"], COST, reading)
    steps = 2 * 128 * 14_000 + 2 * 127 * 32 * (256 + 64) * 128
    assert found["tok_s"] == pytest.approx(64 * 128 / (steps / 1e6))


def test_a_shared_prefix_is_computed_once():
    computing = Machine(read_rate=1e18, operation_rate=1e6)
    shared = floors(scenarios(1024)["s4"], COST, computing)
    unshared = floors(scenarios(1024)["s4-unshared"], COST, computing)
    assert shared["tok_s"] > 5 * unshared["tok_s"]
    assert shared["ttft_p99_ms"] == pytest.approx(COST.prefill(732).operations / 1e3)


def test_an_open_load_ends_after_its_last_arrival():
    fast = Machine(read_rate=1e18, operation_rate=1e18)
    found = floors(scenarios(1024)["s2"], COST, fast)
    assert found["tok_s"] == pytest.approx(64 * 128 / (63 * 0.02), rel=1e-3)


def test_floors_of_a_long_prompt_among_streams(reading):
    found = floors(scenarios(1024)["s5"], COST, reading)
    assert found["gap_max_ms"] == pytest.approx((14_000 + 8 * (32 + 128) * 128) / 1e3)
    assert found["long_ttft_ms"] == pytest.approx(14)


def test_floors_of_streams_that_share_a_long_context(reading):
    found = floors(scenarios(40960)["context-8k"], COST, reading)
    assert found["first_tpot_ms"] == pytest.approx((14_000 + (8000 + 32) * 128) / 1e3)
    step = 14_000 + (8 * (32 + 32) + 7968) * 128
    assert found["tpot_p50_ms"] == pytest.approx(step / 1e3)
    steps = 14_000 + 7968 * 128 + 63 * step
    assert found["tok_s"] == pytest.approx(8 * 64 / (steps / 1e6))
    computing = Machine(read_rate=1e18, operation_rate=1e6)
    found = floors(scenarios(40960)["context-8k"], COST, computing)
    assert found["first_ttft_ms"] == pytest.approx(COST.prefill(8000).operations / 1e3)


def test_smaller_weights_raise_the_rate_limit(reading):
    short = Cost(shape=TINY, weight_bytes=1, kv_bytes=2)
    scenario = scenarios(1024)["s2"]
    assert floors(scenario, short, reading)["tok_s"] > floors(scenario, COST, reading)["tok_s"]
