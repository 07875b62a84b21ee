"""check_spec: specs with one wrong value each."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from core.models.checks import check_spec
from core.models.spec import (
    Activation,
    Attention,
    DecoderSpec,
    FeedForward,
    HeadNorm,
    LatentAttention,
    Layer,
    LayerInput,
    Mixture,
    Norm,
    Rope,
    Router,
    Temperature,
    Undescribed,
)

NORM, ROPE = Norm("rms", 1e-5), Rope((1.0, 0.1))
SMALL = FeedForward(8, Activation("silu"))
HEADS = Attention(4, 2, 8, 8, 0.3, ROPE, window=7, softcap=2.0, clip=1.0, head_norm=HeadNorm(NORM))
DENSE = Layer(
    HEADS,
    FeedForward(16, Activation("silu", limit=7.0)),
    layer_input=FeedForward(4, Activation("silu"), is_gated=False),
)
REUSING = replace(DENSE, mixer=replace(HEADS, keys_of=0, temperature=Temperature(0.1, 8, 0)))
ROUTER = Router("sigmoid", normalises=True, num_groups=4, groups_chosen=2)
SPARSE = Layer(
    LatentAttention(4, 6, 4, 8, 12, 10, 0.3, ROPE, NORM), Mixture(8, 4, ROUTER, SMALL, SMALL)
)
SPEC = DecoderSpec(
    vocab_size=20,
    hidden_size=16,
    layers=(DENSE, REUSING, SPARSE),
    final_norm=NORM,
    ties_head=True,
    num_positions=9,
    layer_input=LayerInput(20, 4, NORM),
    logit_cap=3.0,
)


def changed(part: Any, path: list[str], value: Any) -> Any:
    """A part of a spec, with another value at the end of a path of fields and places."""
    if not path:
        return value
    name, *rest = path
    if isinstance(part, tuple):
        i = int(name)
        return (*part[:i], changed(part[i], rest, value), *part[i + 1 :])
    return replace(part, **{name: changed(getattr(part, name), rest, value)})


WRONG = [
    ("vocab_size", 0, "vocab_size would be 0"),
    ("vocab_size", 21, "layer_input has 20 rows for a vocab_size of 21"),
    ("hidden_size", True, "hidden_size would be True"),
    ("hidden_size", 16.0, "hidden_size would be 16.0"),
    ("hidden_size", 1 << 31, "hidden_size would be 2147483648"),
    ("hidden_size", 10**400, "hidden_size would be too large"),
    ("num_positions", 0, "num_positions would be 0"),
    ("layers", (), "layers would be ()"),
    ("logit_cap", 0.0, "logit_cap would be 0.0"),
    ("logit_scale", float("nan"), "logit_scale would be nan"),
    ("embedding_scale", 1e39, "embedding_scale would be 1e+39"),
    ("embedding_scale", 10**400, "embedding_scale would be too large"),
    ("final_norm.eps", -1e-5, "eps would be -1e-05"),
    ("layer_input.size", 3, "layer_input has no 4 columns"),
    ("layer_input", None, "layer_input has no 4 columns"),
    ("layers.0.mixer.num_heads", 3, "num_heads 3 is no multiple of num_kv_heads 2"),
    ("layers.0.mixer.num_kv_heads", 0, "num_kv_heads would be 0"),
    ("layers.0.mixer.head_dim", 3, "frequencies rotate 4 of 3 columns"),
    ("layers.0.mixer.value_dim", 0, "value_dim would be 0"),
    ("layers.0.mixer.scale", 0.0, "scale would be 0.0"),
    ("layers.0.mixer.window", 0, "window would be 0"),
    ("layers.0.mixer.softcap", 0.0, "softcap would be 0.0"),
    ("layers.0.mixer.clip", -1.0, "clip would be -1.0"),
    ("layers.0.mixer.value_scale", 0.0, "value_scale would be 0.0"),
    ("layers.0.mixer.rope.frequencies", (), "frequencies would be ()"),
    ("layers.0.mixer.rope.frequencies", (1.0, float("inf")), "frequencies would be"),
    ("layers.0.mixer.rope.frequencies", (1e30,), "frequencies would be (1e+30,)"),
    ("layers.0.mixer.rope.scale", float("inf"), "scale would be inf"),
    ("layers.0.feed_forward.size", 0, "size would be 0"),
    ("layers.0.feed_forward.activation.limit", 0.0, "limit would be 0.0"),
    ("layers.0.mixer.keys_of", 0, "keys_of 0 is no earlier layer"),
    ("layers.1.mixer.keys_of", 2, "keys_of 2 is no earlier layer"),
    ("layers.1.mixer.num_kv_heads", 4, "keys_of 0 is a layer with other keys"),
    ("layers.1.mixer.window", None, "keys_of 0 is a layer with other keys"),
    ("layers.0.mixer", SPARSE.mixer, "keys_of 0 is a layer with other keys"),
    ("layers.1.mixer.temperature.length", 0, "length would be 0"),
    ("layers.2.mixer.rope_dim", 3, "frequencies rotate 4 of 3 columns"),
    ("layers.2.mixer.kv_rank", 0, "kv_rank would be 0"),
    ("layers.2.mixer.query_rank", 0, "query_rank would be 0"),
    ("layers.2.feed_forward.per_token", 0, "per_token would be 0"),
    ("layers.2.feed_forward.per_token", 9, "per_token 9 is more than num_experts 8"),
    ("layers.2.feed_forward.per_token", 5, "per_token 5 is more than the chosen groups have"),
    ("layers.2.feed_forward.num_experts", 9, "num_groups 4 do not divide num_experts 9"),
    ("layers.2.feed_forward.num_experts", 4, "num_groups 4 of one expert"),
    ("layers.2.feed_forward.router.groups_chosen", 5, "groups_chosen 5 is more than"),
    ("layers.2.feed_forward.router.num_groups", 0, "num_groups would be 0"),
    ("layers.2.feed_forward.router.scale", 0, "scale would be 0"),
    ("layers.2.feed_forward.shared.size", 0, "size would be 0"),
]


@pytest.mark.parametrize(("path", "value", "reason"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_value_is_refused_by_its_field(path: str, value: Any, reason: str) -> None:
    check_spec(SPEC)
    with pytest.raises(Undescribed, match=f"^{re.escape(reason)}"):
        check_spec(changed(SPEC, path.split("."), value))
