"""All rows of a batch drawn in one kernel: which tokens, how often, alone and in a batch."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from core.contract.params import SamplingParams
from core.kernels.triton.draw import draw_rows
from core.kernels.triton.types import IS_INTERPRETED
from core.sampling.draw import RandomRows, load_row_draw
from core.sampling.greedy import FAILED, MASKED
from core.sampling.sampler import Sampler
from tests.core.sampling.builders import is_clear_cut, make_logits, make_sequence, survivors

BLOCK = 32
CPU = torch.device("cpu")

interpreted = pytest.mark.skipif(not IS_INTERPRETED, reason="Triton's interpreter is not on")


def in_blocks(logits, filters, bits):
    return draw_rows(logits, filters, bits, block=BLOCK)


def grid(num: int) -> torch.Tensor:
    """Random bits whose uniform numbers are an even grid."""
    u = (np.arange(num) + 0.5) / num
    return torch.from_numpy(((u * 2.0**52).astype(np.uint64) << np.uint64(12)).view(np.int64))


def drawn(logits: torch.Tensor, num: int, **params: float) -> torch.Tensor:
    """Draws of one row with ``grid``."""
    full = SamplingParams(**{"max_tokens": 1, "temperature": 1.0, **params})
    top_k = min(full.top_k, len(logits)) or len(logits)
    filters = torch.tensor([full.temperature, full.min_p, top_k, full.top_p], dtype=torch.float64)
    rows = logits.expand(num, -1).contiguous()
    return in_blocks(rows, filters[:, None].expand(-1, num).contiguous(), grid(num))


@interpreted
@pytest.mark.parametrize("vocab_size", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
def test_shares_without_filters_match_the_softmax(vocab_size):
    logits = make_logits(1, vocab_size, scale=2.0)[0]
    tokens = drawn(logits, 24, temperature=0.7)
    shares = np.bincount(tokens.numpy(), minlength=vocab_size) / 24
    assert np.abs(shares - (logits.double() / 0.7).softmax(0).numpy()).max() <= 1.01 / 24
    assert (tokens.diff() >= 0).all()


logit_lists = st.lists(
    st.one_of(st.integers(-8, 8).map(float), st.floats(-20, 20, width=32), st.just(-torch.inf)),
    min_size=1,
    max_size=40,
).filter(lambda values: max(values) > -torch.inf)


@interpreted
@settings(max_examples=10, deadline=None)
@given(
    values=logit_lists,
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    min_p=st.floats(0.0, 0.99),
)
def test_shares_after_min_p(values, temperature, min_p):
    params = {"temperature": temperature, "min_p": min_p}
    logits = torch.tensor(values)
    full = SamplingParams(max_tokens=1, **params)
    assume(is_clear_cut(logits, full))
    expected, probabilities = survivors(logits, full)
    tokens = drawn(logits, 16, **params)
    shares = np.array([(tokens == token).double().mean().item() for token in expected])
    assert shares.sum() == pytest.approx(1.0)  # nothing else was drawn
    assert np.abs(shares - probabilities).max() <= 1.01 / 16


@interpreted
@settings(max_examples=10, deadline=None)
@given(
    values=logit_lists,
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    top_k=st.integers(0, 45),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 1.0)),
    min_p=st.one_of(st.just(0.0), st.floats(0.0, 0.99)),
)
def test_excluded_tokens_are_never_drawn(values, temperature, top_k, top_p, min_p):
    params = {"temperature": temperature, "top_k": top_k, "min_p": min_p, "top_p": top_p}
    logits = torch.tensor(values)
    full = SamplingParams(max_tokens=1, **params)
    assume(is_clear_cut(logits, full))
    expected, _ = survivors(logits, full)
    assert set(drawn(logits, 8, **params).tolist()) <= set(expected)


@interpreted
@pytest.mark.parametrize(
    "params", [{"top_p": 0.4}, {"top_k": 6}, {"top_k": 12, "top_p": 0.7}], ids=str
)
def test_shares_after_top_k_and_top_p(params):
    """A draw that is excluded is repeated among the other tokens, which keep their shares."""
    logits = make_logits(1, 40, scale=1.0, seed=3)[0]
    full = SamplingParams(max_tokens=1, temperature=1.0, **params)
    expected, probabilities = survivors(logits, full)
    assert len(expected) > 4
    num = 30 if len(params) == 1 else 16  # a bisection for each row is slow in the interpreter
    tokens = drawn(logits, num, **params)
    counts = np.array([(tokens == token).sum().item() for token in expected])
    assert counts.sum() == num
    deviation = np.sqrt(num * probabilities * (1 - probabilities))
    assert (np.abs(counts - num * probabilities) < 4 * deviation).all()


@interpreted
def test_equal_logits_rank_by_id():
    logits = torch.zeros(BLOCK + 9)
    assert set(drawn(logits, 6, top_k=BLOCK + 2).tolist()) <= set(range(BLOCK + 2))
    assert set(drawn(logits, 8, top_p=5 / (BLOCK + 9)).tolist()) <= set(range(5))
    logits[-1] = -0.0
    assert set(drawn(logits, 8, top_k=1).tolist()) == {0}


@interpreted
def test_rows_without_a_distribution_fail():
    logits = make_logits(5, 2 * BLOCK)
    logits[1, 5] = torch.nan
    logits[2] = -torch.inf
    logits[3, -1] = torch.inf
    filters = torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.0], [0.0] * 5, [32.0] * 5, [1.0] * 5])
    tokens = in_blocks(logits, filters.double(), grid(5)).tolist()
    assert tokens[1:4] == [FAILED, MASKED, FAILED]
    assert tokens[4] == logits[4].argmax()
    assert tokens[0] >= 0


@interpreted
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_row_gets_the_same_token_alone_and_in_a_batch(dtype):
    ways = [
        {"temperature": 0.0},
        {"temperature": 1.0},
        {"temperature": 0.8, "top_p": 0.7},
        {"temperature": 1.3, "top_k": 7, "top_p": 0.9},
        {"temperature": 1.0, "min_p": 0.2},
        {"temperature": 1.0, "top_k": 1},
        {"temperature": 2.0, "logit_bias": {3: 5.0}},
    ]
    logits = make_logits(len(ways), 50).to(dtype)
    sequences = [make_sequence(output=(4,) * i, seed=i, **way) for i, way in enumerate(ways)]

    def tokens(rows: list[int]) -> list[int]:
        sampler = Sampler(draw=in_blocks)
        results = sampler(logits[rows].clone(), [sequences[row] for row in rows])
        return [result.token_ids[0] for result in results]

    together = tokens(list(range(len(ways))))
    assert together == [tokens([row])[0] for row in range(len(ways))]
    assert together == tokens(list(reversed(range(len(ways)))))[::-1]
    assert together[0] == logits[0].argmax()


def test_known_greedy_tokens_skip_the_draw():
    sampler = Sampler(draw=lambda *_: pytest.fail("nothing is to be drawn"))
    logits = make_logits(2, 50)
    pending = sampler.launch(
        logits,
        [make_sequence(temperature=0.0), make_sequence(temperature=1.0, top_k=1)],
        greedy_tokens=torch.tensor([7, 9]),
    )
    assert [result.token_ids for result in pending.collect()] == [[7], [9]]


@interpreted
def test_tiny_and_huge_temperatures():
    logits = make_logits(2, 50)
    for temperature, kind in ((1e-300, "best"), (1e300, "uniform")):
        sequences = [make_sequence(temperature=temperature, seed=i) for i in range(2)]
        tokens = RandomRows(sequences, in_blocks, vocab_size=50, device=CPU).draw(logits)
        assert (tokens >= 0).all()
        if kind == "best":
            assert torch.equal(tokens, logits.argmax(dim=1))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_draws_on_the_device_are_the_same_alone_and_in_a_batch(dtype):
    device = torch.device("cuda")
    logits = make_logits(64, 50_257, scale=4.0).to(device, dtype)
    draw = load_row_draw(50_257, dtype, device)
    assert draw is not None
    ways = [
        {"temperature": 0.0},
        {"temperature": 1.0},
        {"temperature": 0.8, "top_p": 0.9},
        {"temperature": 0.8, "top_k": 40},
        {"temperature": 0.8, "min_p": 0.05},
    ]
    sequences = [make_sequence(seed=i, **ways[i % len(ways)]) for i in range(64)]
    sampler = Sampler(draw=draw)
    together = [r.token_ids[0] for r in sampler(logits.clone(), sequences)]
    for i, sequence in enumerate(sequences):
        (alone,) = sampler(logits[i : i + 1].clone(), [sequence])
        assert alone.token_ids == [together[i]]
        if sequence.params.is_greedy:
            assert together[i] == int(logits[i].argmax())
        elif sequence.params.top_k == 40:
            assert together[i] in logits[i].topk(40).indices.tolist()
