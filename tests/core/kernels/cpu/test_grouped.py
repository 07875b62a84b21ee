"""Grouped products have the bits of each group's."""

import pytest
import torch

from benchmarks.cpu_products import multiply, multiply_groups
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Epilogue, Format, interleave, pack, pack_groups
from tests.support.builds import BUILDS, build
from tests.support.each import each

pytestmark = pytest.mark.skipif(kernels() is None, reason="no C++ compiler")

NUM_GROUPS = 5
ENDS = torch.tensor([1, 1, 3, 40, 47])
"""Groups of 1, 0, 2, 37 and 7 rows."""


@pytest.fixture(params=BUILDS)
def library(request: pytest.FixtureRequest) -> Kernels:
    return build(request.param)


def packed(library: Kernels, weights: torch.Tensor, bias: torch.Tensor | None, fmt: Format):
    return pack_groups(library, weights, bias, fmt, tuple(weights.shape))


def one_by_one(x: torch.Tensor, each: list, epilogue: Epilogue):
    starts = [0, *ENDS.tolist()]
    parts = [
        multiply(one, x[start:end], epilogue)
        for one, start, end in zip(each, starts, ENDS.tolist(), strict=False)
    ]
    return torch.cat(parts)


@each("has_bias", [False, True])
@each("fmt", list(Format))
def test_a_grouped_product_is_that_of_each_group(library, fmt: Format, has_bias: bool) -> None:
    torch.manual_seed(0)
    for rows, columns in ((70, 33), (64, 300)):
        weights = torch.randn(NUM_GROUPS, rows, columns)
        bias = torch.randn(NUM_GROUPS, rows) if has_bias else None
        x = torch.randn(50, columns)
        weight = packed(library, weights, bias, fmt)
        each = [
            pack(library, [weights[i]], [None if bias is None else bias[i]], fmt)
            for i in range(NUM_GROUPS)
        ]
        expected = one_by_one(x, each, Epilogue.SILU)
        actual = multiply_groups(weight, x, ENDS, Epilogue.SILU)
        assert actual.shape == (50, rows)
        assert torch.equal(actual[: len(expected)], expected)


@each("fmt", list(Format))
def test_a_gated_grouped_product(library: Kernels, fmt: Format) -> None:
    torch.manual_seed(0)
    gates, ups = torch.randn(2, NUM_GROUPS, 64, 48)
    both = [interleave(library, gate, up) for gate, up in zip(gates, ups, strict=True)]
    x = torch.randn(47, 48)
    weight = pack_groups(library, both, None, fmt, (NUM_GROUPS, 128, 48))
    each = [pack(library, one, [None], fmt) for one in both]
    expected = one_by_one(x, each, Epilogue.SILU_GATE)
    assert torch.equal(multiply_groups(weight, x, ENDS, Epilogue.SILU_GATE), expected)


def test_a_product_without_rows(library: Kernels) -> None:
    weight = packed(library, torch.randn(NUM_GROUPS, 8, 4), None, Format.FLOAT32)
    ends = torch.zeros(NUM_GROUPS, dtype=torch.int64)
    assert multiply_groups(weight, torch.empty(0, 4), ends).shape == (0, 8)
    assert multiply_groups(weight, torch.randn(3, 4), ends).shape == (3, 8)  # all undefined
