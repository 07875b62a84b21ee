"""Compiled attention equals the oracle: shared prefixes, split contexts, all group sizes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.attention_batch import batch_of
from benchmarks.fill_cache import fill, rounded
from core.attention import cpu_backend as paged_cpu
from core.batch.model_input import ModelInput
from core.kernels.cpu.library import kernels
from core.kv.layer_spec import LayerSpec
from core.kv.storage import KVStorage
from tests.support.builds import BUILDS, build
from tests.support.sdpa_attention import SDPABackend
from tests.support.threads import num_threads

pytestmark = pytest.mark.skipif(kernels() is None, reason="no C++ compiler")


@pytest.fixture(autouse=True, params=BUILDS)
def _library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test with the kernels of each kind of CPU."""
    library = build(request.param)
    monkeypatch.setattr(paged_cpu, "kernels", lambda: library)


def compare(
    layer: LayerSpec,
    tables: list[list[int]],
    shapes: list[tuple[int, int]],
    *,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Compare with the oracle; return the kernel's output."""
    batch = batch_of(tables, shapes, block_size)
    num_tokens = len(batch.slots)
    generator = torch.Generator().manual_seed(3)
    states = [
        torch.randn(num_tokens, heads, dim, generator=generator)
        for heads, dim in (
            (layer.num_heads, layer.head_dim),
            (layer.num_kv_heads, layer.head_dim),
            (layer.num_kv_heads, layer.value_dim),
        )
    ]
    states[1:] = [rounded(x, dtype).float() for x in states[1:]]
    outputs = []
    for factory, kept in (
        (SDPABackend, torch.float32),
        (paged_cpu.PagedCPUBackend, dtype),
    ):
        storage = KVStorage(
            [layer],
            num_blocks=1 + max(map(max, tables)),
            block_size=block_size,
            dtype=kept,
            device=torch.device("cpu"),
        )
        backend = factory(storage, [layer])
        fill(backend, storage, layer, 0, seed=4, rounded_to=dtype)
        backend.plan(batch)
        outputs.append(backend.forward(*states, 0))
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(outputs[1], outputs[0], rtol=tolerance, atol=tolerance)
    return outputs[1]


CPU = torch.device("cpu")
GROUPED = LayerSpec(6, 2, 16, 16, 0.25, None)


def with_all(layer: LayerSpec) -> LayerSpec:
    """With capped scores, and sinks that take a large and a small share."""
    return replace(layer, softcap=1.5, sinks=torch.linspace(-2, 6, layer.num_heads))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize("window", [None, 40])
def test_shared_blocks(window: int | None, dtype: torch.dtype) -> None:
    prefix = [3, 9, 4, 7, 1, 12]
    tables = [
        [*prefix, 20],
        [*prefix, 21, 22],
        [*prefix[:5], 23],  # leaves the others a block earlier
        [30, 31, 32, 33, 34],
        [*prefix, 24, 25],
        [30, 31, 32, 33, 35, 36],
    ]
    shapes = [(100, 1), (115, 1), (88, 3), (66, 1), (97, 20), (80, 1)]
    for key_dim, value_dim in ((16, 16), (64, 32)):
        layer = LayerSpec(6, 2, key_dim, value_dim, 0.25, window)
        compare(layer, tables, shapes, dtype=dtype)
        compare(with_all(layer), tables, shapes, dtype=dtype)


@pytest.mark.parametrize("is_plain", [True, False])
def test_sequences_with_prefixes_of_different_lengths(is_plain: bool) -> None:
    """Sixteen share 24 blocks, and a seventeenth only the first 9 of them."""
    prefix = list(range(1, 25))
    tables = [[*prefix, 100 + i] for i in range(16)] + [[*prefix[:9], *range(200, 216)]]
    shapes = [(384 + i % 3, 1) for i in range(17)]
    layer = GROUPED if is_plain else with_all(GROUPED)
    compare(layer, tables, shapes)
    batch = batch_of(tables, shapes, 16)
    shared = paged_cpu._sharing(batch, layer, 16)
    items = paged_cpu._divide(batch, layer, 16, shared).items
    readers = {(first, last) for _, _, _, first, last in items}
    assert readers == {(0, 8), (8, 16), (16, 24), (24, 25)}
    assert sum(last - first for _, _, _, first, last in items) == 8 + 16 + 16 * 1 + 17


def test_a_long_context_is_split_over_threads() -> None:
    one_head = LayerSpec(2, 1, 24, 24, 0.2, None)
    for layer in (one_head, with_all(one_head)):
        compare(layer, [list(range(120))], [(1900, 1)])
        compare(layer, [list(range(120))], [(1890, 20)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8], ids=str)
def test_scores_far_apart(dtype: torch.dtype) -> None:
    """Most weights are too small for a float."""
    layer = LayerSpec(2, 1, 16, 16, 6.0, None)
    for spec in (layer, with_all(layer)):
        for shapes in ([(1900, 1)], [(1890, 20)], [(0, 90)]):
            compare(spec, [list(range(120))], shapes, dtype=dtype)


@pytest.mark.parametrize("scale", [1e8, 1e12, 1e30])
def test_scores_whose_powers_of_two_are_no_exact_numbers(scale: float) -> None:
    """The best key gets all of the softmax."""
    layer = LayerSpec(2, 1, 16, 16, scale, None)
    for shapes in ([(1900, 1)], [(1890, 20)], [(0, 90)]):
        compare(layer, [list(range(120))], shapes)


@pytest.mark.parametrize("sink", [-200.0, 200.0])
def test_a_sink_far_above_or_below_every_score(sink: float) -> None:
    """It gets none or all of the softmax."""
    layer = LayerSpec(2, 1, 16, 16, 0.25, None)
    far = replace(layer, sinks=torch.full((2,), sink))
    for shapes in ([(1900, 1)], [(20, 1)], [(0, 30)]):
        output = compare(far, [list(range(120))], shapes)
        if sink > 0:
            assert not output.any()
        else:
            assert torch.equal(output, compare(layer, [list(range(120))], shapes))


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads"), [(8, 1), (16, 1), (80, 1), (9, 3), (5, 5)], ids=str
)
def test_groups_of_any_size(num_heads: int, num_kv_heads: int) -> None:
    layer = LayerSpec(num_heads, num_kv_heads, 16, 16, 0.25, None)
    compare(layer, [[2, 0, 4], [5, 1, 3]], [(40, 1), (20, 13)])


@pytest.mark.parametrize("block_size", [1, 4, 16, 32])
@pytest.mark.parametrize("dims", [(8, 8), (20, 12), (5, 3), (128, 64)], ids=str)
def test_blocks_and_heads_of_any_size(dims: tuple[int, int], block_size: int) -> None:
    layer = LayerSpec(4, 2, *dims, 0.3, None)
    num_blocks = -(-60 // block_size)
    tables = [list(range(i * num_blocks, (i + 1) * num_blocks)) for i in range(2)]
    for dtype in (torch.float32, torch.bfloat16, torch.int8):
        compare(layer, tables, [(59, 1), (30, 17)], block_size=block_size, dtype=dtype)


@pytest.mark.parametrize(("dtype", "dim"), [(torch.bfloat16, 96), (torch.int8, 128)], ids=str)
@pytest.mark.parametrize("window", [None, 90])
def test_prompts_in_tiles(window: int | None, dtype: torch.dtype, dim: int) -> None:
    """Several items, groups of rows and runs, and rows beyond the last whole tile."""
    layer = LayerSpec(4, 2, dim, 64, 0.2, window)
    tables = [[*range(at, at + 30)] for at in (0, 30)]
    compare(layer, tables, [(0, 391), (200, 133)], dtype=dtype)
    compare(with_all(layer), tables, [(450, 20), (3, 270)], dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize("dim", [16, 64])
def test_nan_stays_in_its_sequence(dim: int, dtype: torch.dtype) -> None:
    layer = LayerSpec(6, 2, dim, dim, 0.25, None)
    for where in range(3):
        storage = KVStorage([layer], num_blocks=9, block_size=16, dtype=dtype, device=CPU)
        backend = paged_cpu.PagedCPUBackend(storage, [layer])
        backend.plan(batch_of([[1, 2], [3, 4], [5, 6]], [(20, 1)] * 3, 16))
        states = [torch.randn(3, heads, dim) for heads in (6, 2, 2)]
        states[where][1] = torch.nan
        output = backend.forward(*states, 0)
        assert output[1].isnan().all()
        assert output[[0, 2]].isfinite().all()
        assert storage.not_finite(range(9)) == ([4] if where else [])


@pytest.mark.parametrize(
    ("dtype", "dim", "group"),
    [
        (torch.float32, 16, 3),
        (torch.bfloat16, 16, 3),
        (torch.bfloat16, 32, 3),
        (torch.bfloat16, 64, 1),
        (torch.bfloat16, 96, 2),
        (torch.int8, 16, 3),
        (torch.int8, 64, 3),
    ],
    ids=str,
)
@pytest.mark.parametrize("block_size", [16, 12])
@pytest.mark.parametrize("window", [None, 300])
def test_a_row_has_the_same_bits_however_it_is_computed(
    window: int | None, block_size: int, group: int, dim: int, dtype: torch.dtype
) -> None:
    """Alone, beside others that share its prefix, in chunks of any size, with one thread or two.

    Where the CPU has AMX, dimensions that are multiples of 32 (int8: 64) are computed in tiles, and
    one or two rows in vectors.
    """
    heads = 2 * group
    spec = replace(LayerSpec(heads, 2, dim, dim, 0.5, window), sinks=torch.linspace(-2, 3, heads))
    num_tokens, num_blocks = 700, -(-700 // block_size)
    table = list(np.random.default_rng(0).permutation(num_blocks))
    generator = torch.Generator().manual_seed(5)
    states = [torch.randn(num_tokens, count, dim, generator=generator) for count in (heads, 2, 2)]
    storage = KVStorage(
        [spec], num_blocks=2 * num_blocks, block_size=block_size, dtype=dtype, device=CPU
    )
    backend = paged_cpu.PagedCPUBackend(storage, [spec])

    def compute(spans: list[tuple[int, int]], tables: list[list[int]]) -> torch.Tensor:
        backend.plan(batch_of(tables, [(a, b - a) for a, b in spans], block_size))
        packed = [torch.cat([state[a:b] for a, b in spans]) for state in states]
        return backend.forward(*packed, 0)

    whole = compute([(0, num_tokens)], [table])
    for size in (1, 7, 64, 333):
        starts = range(0, num_tokens, size) if size > 1 else range(500, num_tokens, 13)
        for a in starts:
            b = min(a + size, num_tokens)
            assert torch.equal(compute([(a, b)], [table]), whole[a:b]), (a, b)
    others = [
        [*table[: 520 // block_size], *range(num_blocks, num_blocks + 9 + i)] for i in range(5)
    ]
    spans = [(num_tokens - 1, num_tokens), *((530 + i, 531 + i) for i in range(5)), (600, 640)]
    beside = compute(spans, [table, *others, table])
    assert torch.equal(beside[:1], whole[-1:])
    assert torch.equal(beside[-40:], whole[600:640])
    with num_threads(1):
        assert torch.equal(compute(spans, [table, *others, table]), beside)
        assert torch.equal(compute([(0, num_tokens)], [table]), whole)


@pytest.mark.parametrize("group", [1, 2])
def test_subnormal_sums_have_the_same_bits_in_few_and_many_rows(group: int) -> None:
    """Tiles take subnormal numbers for zero."""
    spec = LayerSpec(2 * group, 2, 64, 64, 0.5, None)
    generator = torch.Generator().manual_seed(3)
    query, key, value = (torch.randn(333, n, 64, generator=generator) for n in (2 * group, 2, 2))
    value *= 3e-37
    storage = KVStorage([spec], num_blocks=21, block_size=16, dtype=torch.bfloat16, device=CPU)
    backend = paged_cpu.PagedCPUBackend(storage, [spec])
    backend.plan(batch_of([[*range(21)]], [(0, 333)], 16))
    whole = backend.forward(query, key, value, 0)
    assert ((whole != 0) & (whole.abs() < torch.finfo(torch.float32).tiny * 8)).any()
    for at in (140, 255, 332):
        backend.plan(batch_of([[*range(21)]], [(at, 1)], 16))
        states = (state[at : at + 1] for state in (query, key, value))
        assert torch.equal(backend.forward(*states, 0), whole[at : at + 1])


def test_int8_sums_of_many_dimensions_do_not_overflow() -> None:
    """The largest query and key of 640 dimensions, whose products of 16 and 8 bits exceed int32."""
    spec = LayerSpec(1, 1, 640, 16, 0.002, None)
    storage = KVStorage([spec], num_blocks=1, block_size=16, dtype=torch.int8, device=CPU)
    backend = paged_cpu.PagedCPUBackend(storage, [spec])
    backend.plan(batch_of([[0]], [(0, 2)], 16))
    key, value = torch.zeros(2, 1, 640), torch.zeros(2, 1, 16)
    key[0] = value[0] = 1.0
    output = backend.forward(torch.ones(2, 1, 640), key, value, 0)
    expected = torch.full((16,), 640 * 0.002).sigmoid()
    torch.testing.assert_close(output[1, 0], expected, rtol=1e-3, atol=0)


CUT = LayerSpec(8, 1, 16, 16, 0.25, None)
WINDOWED = LayerSpec(8, 1, 16, 16, 0.25, 700)
WIDE = LayerSpec(64, 64, 16, 16, 0.25, None)


@pytest.mark.parametrize("layer", [CUT, WINDOWED, WIDE])
@pytest.mark.parametrize(
    ("tables", "shapes"),
    [
        ([[*range(300)]], [(4700, 20)]),  # one context, cut into runs
        ([[*range(8), 8 + i] for i in range(3)], [(130, 1)] * 3),  # shared
        (  # each sequence leaves the common prefix later than the one before
            [[*range(at), *range(300 + 200 * i, 500 + 200 * i)] for i, at in enumerate((8, 16, 24))]
            + [[*range(224)]],
            [(3500, 1)] * 4,
        ),
    ],
    ids=["long", "shared", "tree"],
)
def test_partial_results_stay_within_the_estimate(layer, tables, shapes):
    batch = batch_of(tables, shapes, 16)
    plan = paged_cpu._Plan.of(batch, layer, 16)
    num_tokens, context = len(batch.positions), max(map(sum, shapes))
    bound = paged_cpu.PagedCPUBackend.step_nbytes([layer], num_tokens, len(shapes), context)
    assert plan.partial.nbytes <= bound
    if layer is CUT:
        assert plan.partial.nbytes > bound / 4


@pytest.mark.parametrize("block_size", [16, 65, 96, 128, 200])
def test_the_estimate_holds_for_all_block_sizes(block_size: int) -> None:
    shapes = [(2600, 1)]
    batch = batch_of([[*range(-(-2601 // block_size))]], shapes, block_size)
    plan = paged_cpu._Plan.of(batch, CUT, block_size)
    assert plan.partial.nbytes <= paged_cpu.PagedCPUBackend.step_nbytes([CUT], 1, 1, 2601)


@pytest.mark.parametrize("window", [None, 20])
def test_steps_of_one_layout_keep_the_items(window: int | None) -> None:
    """The rows of the second step are those of a step that was planned anew."""
    layer = LayerSpec(4, 2, 16, 16, 0.25, window)
    tables, layout = [[3, 9, 4], [7, 1]], object()
    steps = [
        replace(batch_of(tables, [(34 + i, 1), (17 + i, 1)], 16), layout=layout) for i in range(4)
    ]
    generator = torch.Generator().manual_seed(0)
    states = [torch.randn(2, heads, 16, generator=generator) for heads in (4, 2, 2)]

    def outputs(steps: list[ModelInput]) -> list[torch.Tensor]:
        storage = KVStorage([layer], num_blocks=10, block_size=16, dtype=torch.float32, device=CPU)
        backend = paged_cpu.PagedCPUBackend(storage, [layer])
        found = []
        slots = steps[0].slots.clone()
        for step in steps:
            slots.copy_(step.slots)  # in place, as the steps of a layout have it
            backend.plan(replace(step, slots=slots))
            found.append(backend.forward(*states, 0))
        return found

    anew = outputs([replace(step, layout=None) for step in steps])
    assert all(map(torch.equal, outputs(steps), anew))
