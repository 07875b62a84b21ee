"""The Triton backend equals the oracle, in Triton's interpreter and on a GPU."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.attention_batch import shuffled_batch
from core.batch.model_input import ModelInput
from core.contract.errors import ModelLoadError
from core.kv.layer_spec import LayerSpec
from core.kv.storage import KVStorage

pytest.importorskip("triton")

from core.attention.triton.backend import TritonBackend
from core.attention.triton.decode_plan import PackedDecodePlan
from core.kernels.triton.types import IS_INTERPRETED
from tests.support.sdpa_attention import SDPABackend

BLOCK_SIZE = 4
NUM_BLOCKS = 120
SHORTEST_SPLIT = 16

LAYERS = [
    LayerSpec(6, 2, 16, 16, 0.3, None),
    LayerSpec(6, 2, 16, 16, 0.3, 7),
    LayerSpec(4, 4, 24, 12, 0.5, None),
    LayerSpec(4, 1, 8, 8, 0.5, 1),
    LayerSpec(5, 1, 32, 40, 0.2, 30),
    LayerSpec(6, 2, 16, 16, 0.6, None, softcap=1.5, sinks=torch.linspace(-3, 5, 6)),
    LayerSpec(5, 1, 16, 24, 0.5, 30, softcap=2.0, sinks=torch.linspace(5, -3, 5)),
]
ONE = [(0, 1)]
DECODES = [(13, 1), (0, 1), (70, 1), (3, 1), (31, 1)]
MIXED = [(0, 9), (8, 1), (5, 17), (30, 2), (61, 1), (29, 3), (16, 16), (2, 1)]
LONG = [(3, 1), (0, 70), (64, 64)]

DEVICES = [
    pytest.param(
        "cpu",
        marks=pytest.mark.skipif(not IS_INTERPRETED, reason="Triton's interpreter is not on"),
    ),
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ],
    ),
]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


HOST = torch.device("cpu")
"""Plans for graphs read a batch on the host; they upload it themselves."""


def batch_of(
    shapes: list[tuple[int, int]], device: torch.device, rng: random.Random | None = None
) -> ModelInput:
    return shuffled_batch(shapes, BLOCK_SIZE, NUM_BLOCKS, rng or random.Random(0)).on(device)


def rows_of(batch: ModelInput, sequence: int) -> ModelInput:
    """One sequence of a batch as a batch."""
    start, end = batch.query_starts[sequence : sequence + 2]
    num_blocks = -(-int(batch.context_lens[sequence]) // BLOCK_SIZE)
    return replace(
        batch,
        slots=batch.slots[start:end],
        query_starts=np.array([0, end - start]),
        context_lens=batch.context_lens[sequence : sequence + 1],
        block_tables=batch.block_tables[sequence : sequence + 1, :num_blocks],
    )


def random_storage(device: torch.device, dtype: torch.dtype) -> KVStorage:
    storage = KVStorage(
        LAYERS, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, dtype=dtype, device=device
    )
    generator = torch.Generator().manual_seed(1)
    for tensor in [*storage.keys, *storage.values]:
        tensor.copy_(torch.randn(tensor.shape, generator=generator))
    return storage


def random_states(layer: int, num_tokens: int, dtype: torch.dtype, device: torch.device):
    """Query, key and value of one layer in the layout of models: heads first."""
    spec = LAYERS[layer]
    generator = torch.Generator().manual_seed(2)
    return [
        torch.randn(heads, num_tokens, dim, generator=generator).to(device, dtype).transpose(0, 1)
        for heads, dim in (
            (spec.num_heads, spec.head_dim),
            (spec.num_kv_heads, spec.head_dim),
            (spec.num_kv_heads, spec.value_dim),
        )
    ]


def triton_over(storage: KVStorage) -> TritonBackend:
    return TritonBackend(storage, LAYERS, shortest_split=SHORTEST_SPLIT)


def use_filled(
    backend: TritonBackend, plan: PackedDecodePlan, shapes: list[tuple[int, int]]
) -> None:
    """Fill the plan with a step, as the graphs do, and use it."""
    host = np.full(len(plan.words), 2**31 - 1, dtype=np.int32)
    num_words = plan.fill(batch_of(shapes, HOST), host)
    plan.words[:num_words].copy_(torch.from_numpy(host[:num_words]))
    backend.use(plan)


@pytest.mark.parametrize(
    ("layer", "shapes", "dtype"),
    [
        (0, ONE, torch.float32),
        (0, DECODES, torch.float32),
        (0, MIXED, torch.float32),
        (0, MIXED, torch.bfloat16),
        (0, LONG, torch.float16),
        (1, DECODES, torch.bfloat16),
        (1, MIXED, torch.float32),
        (1, LONG, torch.float32),
        (2, MIXED, torch.float32),
        (3, MIXED, torch.float32),
        (4, MIXED, torch.float16),
        (4, LONG, torch.float32),
        (5, ONE, torch.float32),
        (5, DECODES, torch.float32),
        (5, MIXED, torch.bfloat16),
        (5, LONG, torch.float32),
        (6, MIXED, torch.float32),
    ],
    ids=str,
)
def test_attention_equals_the_oracle(
    layer: int, shapes: list[tuple[int, int]], dtype: torch.dtype, device: torch.device
) -> None:
    batch = batch_of(shapes, device)
    states = random_states(layer, len(batch.slots), dtype, device)
    results = []
    for make in (lambda s: SDPABackend(s, LAYERS), triton_over):
        storage = random_storage(device, dtype)
        backend = make(storage)
        backend.plan(batch)
        results.append((backend.forward(*states, layer), storage))
    (expected, expected_storage), (actual, storage) = results
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
    for i in range(len(LAYERS)):
        assert torch.equal(storage.keys[i], expected_storage.keys[i])
        assert torch.equal(storage.values[i], expected_storage.values[i])


@pytest.mark.parametrize("layer", [0, 4, 5])
def test_a_sequence_is_bitwise_the_same_alone_and_in_a_batch(
    layer: int, device: torch.device
) -> None:
    batch = batch_of(MIXED, device)
    query, key, value = random_states(layer, len(batch.slots), torch.float32, device)
    backend = triton_over(random_storage(device, torch.float32))
    backend.plan(batch)
    together = backend.forward(query, key, value, layer)
    for i in range(batch.num_seqs):
        alone = rows_of(batch, i)
        rows = slice(int(batch.query_starts[i]), int(batch.query_starts[i + 1]))
        backend.plan(alone)
        result = backend.forward(query[rows], key[rows], value[rows], layer)
        assert torch.equal(result, together[rows])


def test_a_sequence_reads_shared_blocks_that_the_same_step_writes(device: torch.device) -> None:
    """One sequence's chunk fills blocks that another reads in the same step."""
    batch = batch_of([(0, 12), (12, 1)], device)
    batch.block_tables[1, :3] = batch.block_tables[0, :3]
    states = random_states(0, len(batch.slots), torch.float32, device)
    backend = triton_over(random_storage(device, torch.float32))
    backend.plan(batch)
    oracle = SDPABackend(random_storage(device, torch.float32), LAYERS)
    oracle.plan(batch)
    torch.testing.assert_close(
        backend.forward(*states, 0), oracle.forward(*states, 0), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("layer", [0, 1, 3, 5])
def test_a_decode_plan_equals_a_plain_plan(layer: int, device: torch.device) -> None:
    """The second fill has other and fewer sequences."""
    storage = random_storage(device, torch.float32)
    backend = triton_over(storage)
    plan = backend.decode_plan(6, 100)
    for shapes in (DECODES, [(0, 1), (99, 1)]):
        batch = batch_of(shapes, device)
        states = random_states(layer, 6, torch.float32, device)
        n = len(shapes)
        backend.plan(batch)
        expected = backend.forward(*(state[:n] for state in states), layer)
        before = storage.keys[layer].clone(), storage.values[layer].clone()
        use_filled(backend, plan, shapes)
        actual = backend.forward(*states, layer)
        assert torch.equal(actual[:n], expected)
        assert not actual[n:].any()
        assert torch.equal(storage.keys[layer], before[0])  # padding wrote to no slot
        assert torch.equal(storage.values[layer], before[1])


def test_a_decode_plan_keeps_its_tensors_and_rejects_other_steps(device: torch.device) -> None:
    backend = triton_over(random_storage(device, torch.float32))
    plan = backend.decode_plan(4, 64)
    step, words = plan.step, plan.words.data_ptr()
    for shapes in ([(63, 1)], [(0, 1), (5, 1), (40, 1), (2, 1)]):
        use_filled(backend, plan, shapes)
        assert plan.step is step
        assert plan.words.data_ptr() == words
    with pytest.raises(AssertionError):
        use_filled(backend, plan, [(64, 1)])
    with pytest.raises(AssertionError):
        use_filled(backend, plan, [(4, 2)])


def test_a_decode_plan_in_a_larger_buffer(device: torch.device) -> None:
    backend = triton_over(random_storage(device, torch.float32))
    batch = batch_of(DECODES, device)
    states = random_states(0, len(DECODES), torch.float32, device)
    backend.plan(batch)
    expected = backend.forward(*states, 0)
    buffer = torch.zeros(2048, dtype=torch.int32, device=device)
    plan = backend.decode_plan(len(DECODES), 80, words=buffer[512:])
    host = np.full(1536, 2**31 - 1, dtype=np.int32)
    num_words = plan.fill(batch_of(DECODES, HOST), host)
    buffer[512 : 512 + num_words].copy_(torch.from_numpy(host[:num_words]))
    backend.use(plan)
    assert torch.equal(backend.forward(*states, 0), expected)


def test_an_empty_context_gives_zeros(device: torch.device) -> None:
    batch = batch_of([(20, 1), (20, 1)], device)
    batch.context_lens[1] = 0
    backend = triton_over(random_storage(device, torch.float32))
    backend.plan(batch)
    output = backend.forward(*random_states(0, 2, torch.float32, device), 0)
    assert output[0].all()
    assert not output[1].any()


def test_nan_in_unused_slots_does_not_spread(device: torch.device) -> None:
    batch = batch_of([(13, 1), (2, 9)], device)
    states = random_states(0, len(batch.slots), torch.float32, device)
    clean = random_storage(device, torch.float32)
    dirty = random_storage(device, torch.float32)
    used = [[] for _ in range(NUM_BLOCKS)]
    for table, length in zip(batch.block_tables, batch.context_lens, strict=True):
        for token in range(length):
            used[table[token // BLOCK_SIZE]].append(token % BLOCK_SIZE)
    for block, offsets in enumerate(used):
        unused = [i for i in range(BLOCK_SIZE) if i not in offsets]
        dirty.keys[0][block, :, unused] = float("nan")
        dirty.values[0][block, :, unused] = float("nan")
    results = []
    for storage in (clean, dirty):
        backend = triton_over(storage)
        backend.plan(batch)
        results.append(backend.forward(*states, 0))
    assert torch.equal(*results)


@pytest.mark.parametrize("layer", [1, 6])
def test_blocks_before_every_window_are_not_read(layer: int, device: torch.device) -> None:
    batch = batch_of(MIXED, device)
    states = random_states(layer, len(batch.slots), torch.float32, device)
    storage = random_storage(device, torch.float32)
    backend = triton_over(storage)
    backend.plan(batch)
    expected = backend.forward(*states, layer)
    poisoned = next(iter(set(range(NUM_BLOCKS)) - set(batch.block_tables.flatten().tolist())))
    for tensor in (storage.keys[layer], storage.values[layer]):
        tensor[poisoned] = float("nan")
    first_queries = batch.context_lens - np.diff(batch.query_starts)
    num_hidden = np.maximum(first_queries - LAYERS[layer].sliding_window + 1, 0) // BLOCK_SIZE
    is_hidden = np.arange(batch.block_tables.shape[1]) < num_hidden[:, None]
    assert is_hidden.sum() > 5
    batch.block_tables[is_hidden] = poisoned
    backend.plan(batch)
    assert torch.equal(backend.forward(*states, layer), expected)


@pytest.mark.parametrize("layer", [0, 4])
def test_a_float8_cache_equals_the_oracle_within_rounding(layer: int, device: torch.device) -> None:
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 9):
        pytest.skip("this GPU has no float8")
    batch = batch_of(MIXED, device)
    query, key, value = random_states(layer, len(batch.slots), torch.bfloat16, device)
    scales = [
        (
            torch.full((la.num_kv_heads,), 0.02, device=device),
            torch.linspace(0.01, 0.03, la.num_kv_heads, device=device),
        )
        for la in LAYERS
    ]
    storage = KVStorage(
        LAYERS,
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
        dtype=torch.float8_e4m3fn,
        device=device,
    )
    for tensor in (storage.keys[layer], storage.values[layer]):
        tensor.copy_(torch.randn(tensor.shape) * 50)
    backend = TritonBackend(storage, LAYERS, scales=scales, shortest_split=SHORTEST_SPLIT)
    backend.plan(batch)
    actual = backend.forward(query, key, value, layer)

    readable = random_storage(device, torch.float32)
    written = []
    for stored, plain, scale, states in zip(
        (storage.keys[layer], storage.values[layer]),
        (readable.keys[layer], readable.values[layer]),
        scales[layer],
        (key, value),
        strict=True,
    ):
        plain.copy_(stored.float() * scale[:, None, None])
        written.append(plain[batch.slots // BLOCK_SIZE, :, batch.slots % BLOCK_SIZE])
        is_far = (written[-1] - states.float()).abs() > states.float().abs() / 8 + 1e-3
        # the interpreter (3.9) rounds 1.95 to 1: it loses the carry out of the mantissa
        assert is_far.float().mean() < (0.05 if device.type == "cpu" else 1e-9)
    oracle = SDPABackend(readable, LAYERS)
    oracle.plan(batch)
    expected = oracle.forward(query.float(), *written, layer)
    torch.testing.assert_close(actual.float(), expected, rtol=3e-2, atol=3e-2)


def test_float8_values_saturate(device: torch.device) -> None:
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 9):
        pytest.skip("this GPU has no float8")
    storage = KVStorage(
        LAYERS,
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
        dtype=torch.float8_e4m3fn,
        device=device,
    )
    backend = triton_over(storage)
    backend.plan(batch_of(ONE, device))
    query, key, value = random_states(0, 1, torch.bfloat16, device)
    output = backend.forward(query, key * 1e6, value * 1e6, 0)
    assert float(storage.keys[0].float().abs().max()) == 448
    assert float(output.abs().max()) == 448


def test_a_block_size_must_be_a_power_of_two(device: torch.device) -> None:
    storage = KVStorage(LAYERS, num_blocks=2, block_size=12, dtype=torch.float32, device=device)
    with pytest.raises(ModelLoadError, match="12"):
        TritonBackend(storage, LAYERS)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_graph_replays_steps_of_other_sizes() -> None:
    device = torch.device("cuda")
    backend = triton_over(random_storage(device, torch.bfloat16))
    plan = backend.decode_plan(8, 100)
    static = random_states(0, 8, torch.bfloat16, device)
    use_filled(backend, plan, ONE)
    backend.forward(*static, 0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = backend.forward(*static, 0)
    for shapes in (DECODES, [(99, 1), (0, 1)], [(i, 1) for i in range(8)]):
        batch = batch_of(shapes, device)
        n = len(shapes)
        backend.plan(batch)
        expected = backend.forward(*(state[:n] for state in static), 0)
        use_filled(backend, plan, shapes)
        graph.replay()
        assert torch.equal(output[:n], expected)
        assert not output[n:].any()
