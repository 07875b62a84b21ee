"""DecoderSpec: what a decoder computes, as frozen data without tensors and code.

A row of ``core.models.families`` makes it of a ``config.json``. An executor computes it. A table of
names says which tensors of a checkpoint have its roles.

``hidden`` is the width of the residual stream. A part of a spec lists its tensors by role, with
their shapes: matrices are ``[outputs, inputs]``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Shape: TypeAlias = tuple[int, ...]
Tensors: TypeAlias = Iterator[tuple[str, Shape]]


class Undescribed(Exception):
    """A configuration or a checkpoint that no row describes; the message names the key."""


class NoRow(Undescribed):
    """No row reads models of this kind."""


def matrix(role: str, outputs: int, inputs: int, bias: bool = False, stack: Shape = ()) -> Tensors:
    """A matrix and its bias; ``stack`` is the number of matrices in one tensor."""
    yield role, (*stack, outputs, inputs)
    if bias:
        yield f"{role}_bias", (*stack, outputs)


@dataclass(frozen=True, slots=True)
class Norm:
    """``x / sqrt(mean(x²) + eps) * (weight + offset) + bias``; "layer" subtracts the mean first."""

    kind: Literal["rms", "layer"]
    eps: float
    offset: float = 0.0
    has_weight: bool = True
    has_bias: bool = False

    def tensors(self, role: str, shape: Shape) -> Tensors:
        if self.has_weight:
            yield role, shape
        if self.has_bias:
            yield f"{role}_bias", shape


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotates pairs of a head's first columns by ``position * frequency``.

    The kinds of RoPE are resolved to frequencies for the served length, so an executor knows none.
    """

    frequencies: tuple[float, ...]  # radians per position, one for each pair
    scale: float = 1.0  # of cosines and sines
    pairs: Literal["halves", "neighbours"] = "halves"


@dataclass(frozen=True, slots=True)
class HeadNorm:
    """A norm of queries and keys. "each": every head has a weight of its own; "all": one row."""

    norm: Norm
    over: Literal["head", "each", "all"] = "head"
    after_rope: bool = False

    def tensors(self, role: str, heads: int, head_dim: int) -> Tensors:
        shapes = {"head": (head_dim,), "each": (heads, head_dim), "all": (heads * head_dim,)}
        return self.norm.tensors(role, shapes[self.over])


@dataclass(frozen=True, slots=True)
class Temperature:
    """Scales queries by ``1 + strength * log(1 + floor((position + first) / length))``."""

    strength: float
    length: int
    first: int


@dataclass(frozen=True, slots=True)
class Attention:
    """Softmax attention.

    Queries are ``[num_tokens, num_heads, head_dim]``, keys and values ``[num_tokens, num_kv_heads,
    head_dim]`` and ``[..., value_dim]``; ``qkv`` has their rows in this order. ``keys_of`` is the
    layer whose keys and values are used instead. With ``values_are_keys`` values are the keys
    without norm and rotation.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int
    scale: float  # of scores
    rope: Rope | None
    window: int | None = None  # tokens that a query attends to, its own included
    softcap: float | None = None  # scores become cap * tanh(score / cap)
    has_sinks: bool = False  # a score of each head that has no value
    has_bias: bool = False  # of queries, keys and values
    has_output_bias: bool = False
    head_norm: HeadNorm | None = None
    value_norm: Norm | None = None
    value_scale: float = 1.0
    clip: float | None = None  # of queries, keys and values before rotation
    temperature: Temperature | None = None
    keys_of: int | None = None
    values_are_keys: bool = False

    def tensors(self, hidden: int) -> Tensors:
        queries, keys = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        if self.keys_of is not None:
            yield from matrix("query", queries, hidden, self.has_bias)
        elif self.values_are_keys:
            yield from matrix("qk", queries + keys, hidden, self.has_bias)
        else:
            values = self.num_kv_heads * self.value_dim
            yield from matrix("qkv", queries + keys + values, hidden, self.has_bias)
        yield from matrix("output", hidden, self.num_heads * self.value_dim, self.has_output_bias)
        if self.head_norm is not None:
            yield from self.head_norm.tensors("query_norm", self.num_heads, self.head_dim)
            if self.keys_of is None:
                yield from self.head_norm.tensors("key_norm", self.num_kv_heads, self.head_dim)
        if self.value_norm is not None and self.keys_of is None:
            yield from self.value_norm.tensors("value_norm", (self.value_dim,))
        if self.has_sinks:
            yield "sinks", (self.num_heads,)


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Attention whose keys and values are products of a latent of ``kv_rank`` values.

    A key is ``plain_dim`` columns of its head and ``rope_dim`` rotated ones that all heads share.
    """

    num_heads: int
    plain_dim: int
    rope_dim: int
    value_dim: int
    query_rank: int | None  # None: queries are one product of the input
    kv_rank: int
    scale: float
    rope: Rope
    norm: Norm  # of both latents
    has_bias: bool = False  # of the products of the input, and of the output

    def tensors(self, hidden: int) -> Tensors:
        queries = self.num_heads * (self.plain_dim + self.rope_dim)
        if self.query_rank is None:
            yield from matrix("query", queries, hidden)
        else:
            yield from matrix("query_down", self.query_rank, hidden, self.has_bias)
            yield from self.norm.tensors("query_norm", (self.query_rank,))
            yield from matrix("query_up", queries, self.query_rank)
        yield from matrix("kv_down", self.kv_rank + self.rope_dim, hidden, self.has_bias)
        yield from self.norm.tensors("kv_norm", (self.kv_rank,))
        yield from matrix("kv_up", self.num_heads * (self.plain_dim + self.value_dim), self.kv_rank)
        yield from matrix("output", hidden, self.num_heads * self.value_dim, self.has_bias)


Mixer: TypeAlias = Attention | LatentAttention
"""The part of a layer that mixes tokens, by class."""


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of each value. With ``limit``, ``clamp(x) * sigmoid(alpha * x)`` as in gpt-oss."""

    name: str
    alpha: float = 1.0
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class FeedForward:
    """``down(activation(gate x) * up x)``, without a gate ``down(activation(up x))``.

    Rows of ``up`` are those of gates, then those of ups.
    """

    size: int
    activation: Activation
    is_gated: bool = True
    has_bias: bool = False

    def tensors(self, hidden: int, prefix: str = "", stack: Shape = ()) -> Tensors:
        rows = self.size * (1 + self.is_gated)
        yield from matrix(f"{prefix}up", rows, hidden, self.has_bias, stack)
        yield from matrix(f"{prefix}down", hidden, self.size, self.has_bias, stack)
        if self.activation.name == "xielu":
            yield f"{prefix}slopes", (2,)  # of positive and negative values, before softplus


@dataclass(frozen=True, slots=True)
class Router:
    """Chooses experts for a token and weighs them.

    A softmax over all experts whose chosen weights are normalised is a softmax over the chosen.
    """

    score: Literal["softmax", "sigmoid"]
    normalises: bool  # the chosen weights add up to 1
    has_bias: bool = False
    has_choice_bias: bool = False  # added to the scores for the choice alone
    num_groups: int = 1  # of experts; those of the best groups can be chosen
    groups_chosen: int = 1
    scale: float = 1.0  # of the weights
    weighs_input: bool = False  # what experts read, instead of what they return


@dataclass(frozen=True, slots=True)
class Mixture:
    """Experts that a router chooses, and one that computes all tokens."""

    num_experts: int
    per_token: int
    router: Router
    expert: FeedForward
    shared: FeedForward | None = None
    has_shared_gate: bool = False  # a sigmoid weighs the shared expert

    def tensors(self, hidden: int) -> Tensors:
        yield from matrix("router", self.num_experts, hidden, self.router.has_bias)
        if self.router.has_choice_bias:
            yield "choice_bias", (self.num_experts,)
        yield from self.expert.tensors(hidden, "experts_", (self.num_experts,))
        if self.shared is not None:
            yield from self.shared.tensors(hidden, "shared_")
        if self.has_shared_gate:
            yield "shared_gate", (1, hidden)


@dataclass(frozen=True, slots=True)
class LayerInput:
    """A vector of each token for each layer, beside the residual stream.

    It is the mean of a row of a second embedding and of a product of the first one, both scaled.
    """

    vocab_size: int
    size: int
    norm: Norm

    def tensors(self, hidden: int, num_layers: int) -> Tensors:
        yield "input_embedding", (self.vocab_size, num_layers * self.size)
        yield from matrix("input_projection", num_layers * self.size, hidden)
        yield from self.norm.tensors("input_norm", (self.size,))


@dataclass(frozen=True, slots=True)
class Layer:
    """A mixer and a feed-forward, whose results are added to the residual stream.

    Pre-norms act on what they read, post-norms on what is added; None: there is no such norm.
    """

    mixer: Mixer
    feed_forward: FeedForward | Mixture
    pre_mixer: Norm | None = None
    post_mixer: Norm | None = None
    pre_feed_forward: Norm | None = None  # None in a parallel layer: it shares pre_mixer
    post_feed_forward: Norm | None = None
    is_parallel: bool = False  # the feed-forward reads the layer's input, as the mixer does
    residual_scale: float = 1.0  # of what is added
    layer_input: FeedForward | None = None  # adds down(activation(up x) * LayerInput)
    input_norm: Norm | None = None  # of what that adds
    has_output_scale: bool = False

    def tensors(self, hidden: int) -> Tensors:
        yield from self.mixer.tensors(hidden)
        yield from self.feed_forward.tensors(hidden)
        for role in ("pre_mixer", "post_mixer", "pre_feed_forward", "post_feed_forward"):
            norm: Norm | None = getattr(self, role)
            if norm is not None:
                yield from norm.tensors(role, (hidden,))
        if self.layer_input is not None:
            yield from self.layer_input.tensors(hidden, "input_")
        if self.input_norm is not None:
            yield from self.input_norm.tensors("input_norm", (hidden,))
        if self.has_output_scale:
            yield "output_scale", (1,)


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """A decoder from token ids to logits."""

    vocab_size: int
    hidden_size: int
    layers: tuple[Layer, ...]
    final_norm: Norm
    ties_head: bool  # logits are products with the embedding
    has_head_bias: bool = False
    embedding_scale: float = 1.0
    embedding_norm: Norm | None = None
    num_positions: int | None = None  # of a learned embedding of positions
    layer_input: LayerInput | None = None
    logit_scale: float = 1.0
    logit_cap: float | None = None  # logits become cap * tanh(logit / cap)

    def tensors(self) -> Tensors:
        """Roles and shapes of the tensors outside of layers."""
        hidden = self.hidden_size
        yield "embedding", (self.vocab_size, hidden)
        if self.embedding_norm is not None:
            yield from self.embedding_norm.tensors("embedding_norm", (hidden,))
        if self.num_positions is not None:
            yield "positions", (self.num_positions, hidden)
        if self.layer_input is not None:
            yield from self.layer_input.tensors(hidden, len(self.layers))
        yield from self.final_norm.tensors("final_norm", (hidden,))
        if not self.ties_head:
            yield "head", (self.vocab_size, hidden)
        if self.has_head_bias:
            yield "head_bias", (self.vocab_size,)
