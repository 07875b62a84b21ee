"""Products with weights are left out."""

import torch
from torch import nn

from core.hook.without_products import WithoutProducts


@torch.inference_mode()
def test_a_product_that_is_left_out_gives_the_bias() -> None:
    model, x = nn.Linear(32, 8), torch.ones(2, 32)
    with WithoutProducts():
        plain, bare = model(x), nn.functional.linear(x, model.weight)
        named = nn.functional.linear(x, model.weight, bias=model.bias)
    assert torch.equal(plain, model.bias.expand(2, 8))
    assert torch.equal(named, plain)
    assert not bare.any()
