"""Products are left out, and those of one module only."""

import torch
from core.gguf.modules import BlockLinear
from torch import nn

from core.gguf.blocks import Q8_0
from core.model.without_products import WithoutProducts
from tests.support.gguf_blocks import random_matrix


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Linear(32, 8)
        self.blocks = BlockLinear(random_matrix(Q8_0, 8, 32), torch.full((8,), 3.0))


@torch.inference_mode()
def test_a_product_that_is_left_out_gives_the_bias() -> None:
    model, x = Two(), torch.ones(2, 32)
    with WithoutProducts():
        plain, blocks = model.plain(x), model.blocks(x)
        named = nn.functional.linear(x, model.plain.weight, bias=model.plain.bias)
    assert torch.equal(plain, model.plain.bias.expand(2, 8))
    assert torch.equal(named, plain)
    assert torch.equal(blocks, torch.full((2, 8), 3.0))


@torch.inference_mode()
def test_products_of_other_modules_are_computed() -> None:
    inside, outside, x = Two(), Two(), torch.ones(2, 32)
    expected = outside.plain(x), outside.blocks(x)
    with WithoutProducts([inside]):
        assert torch.equal(inside.plain(x), inside.plain.bias.expand(2, 8))
        assert torch.equal(inside.blocks(x), torch.full((2, 8), 3.0))
        assert torch.equal(outside.plain(x), expected[0])
        assert torch.equal(outside.blocks(x), expected[1])
