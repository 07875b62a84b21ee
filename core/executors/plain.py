"""PlainExecutor: computes a DecoderSpec with torch's operations.

It is the oracle of the compiled executor in tests, which compare it with transformers. No engine
uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, assert_never

import torch
from torch.nn import functional

from core.attention.base import AttentionBackend
from core.batch.logits import Logits
from core.batch.model_input import ModelInput
from core.executors.attention_shapes import layer_spec
from core.kv.layer_spec import LayerSpec
from core.models.names import Names
from core.models.spec import (
    Activation,
    Attention,
    DecoderSpec,
    FeedForward,
    HeadNorm,
    LatentAttention,
    Layer,
    Mixture,
    Norm,
    Rope,
    Router,
)
from core.weights.roles import RoleReader, Tensors

Keys = dict[int, tuple[torch.Tensor, torch.Tensor]]


def attention_layers(spec: DecoderSpec, weights: Weights) -> list[LayerSpec]:
    """The layers as an attention backend and a KV cache need them."""
    return [
        layer_spec(layer.mixer, roles.get("sinks"))
        for layer, roles in zip(spec.layers, weights.layers, strict=True)
    ]


class PlainExecutor:
    """Computes steps of any spec. ``attention`` has the layers of ``attention_layers``."""

    def __init__(self, spec: DecoderSpec, weights: Weights, attention: AttentionBackend) -> None:
        self._spec = spec
        self._weights = weights
        self._attention = attention

    def __call__(self, batch: ModelInput) -> Logits:
        """Compute a step whose attention is planned."""
        spec, top = self._spec, self._weights.top
        x = top["embedding"][batch.token_ids] * spec.embedding_scale  # [num_tokens, hidden]
        x = normalise(spec.embedding_norm, x, top, "embedding_norm")
        if spec.num_positions is not None:
            x = x + top["positions"][batch.positions]
        inputs = self._layer_inputs(batch, x)
        keys: Keys = {}
        for i, layer in enumerate(spec.layers):
            roles = self._weights.layers[i]
            x = self._layer(layer, i, roles, x, batch.positions, keys)
            if layer.layer_input is not None and inputs is not None:
                gate = _activate(layer.layer_input.activation, linear(x, roles, "input_up"))
                added = linear(gate * inputs[:, i], roles, "input_down")
                x = x + normalise(layer.input_norm, added, roles, "input_norm")
            if layer.has_output_scale:
                x = x * roles["output_scale"]
        x = normalise(spec.final_norm, x[batch.logits_indices], top, "final_norm")
        head = top["embedding"] if spec.ties_head else top["head"]
        logits = functional.linear(x, head, top.get("head_bias")) * spec.logit_scale
        return Logits(_capped(logits, spec.logit_cap))

    def _layer_inputs(self, batch: ModelInput, x: torch.Tensor) -> torch.Tensor | None:
        """``[num_tokens, num_layers, size]``."""
        spec, top = self._spec.layer_input, self._weights.top
        if spec is None:
            return None
        shape = (len(x), len(self._spec.layers), spec.size)
        own = top["input_embedding"][batch.token_ids].view(shape) * spec.size**0.5
        made = linear(x, top, "input_projection").view(shape) * x.shape[1] ** -0.5
        mean: torch.Tensor = (normalise(spec.norm, made, top, "input_norm") + own) * 2**-0.5
        return mean

    def _layer(
        self,
        layer: Layer,
        index: int,
        roles: Roles,
        x: torch.Tensor,
        positions: torch.Tensor,
        keys: Keys,
    ) -> torch.Tensor:
        """The residual stream after the two halves of a layer."""
        read = normalise(layer.pre_mixer, x, roles, "pre_mixer")
        match layer.mixer:
            case Attention() as attention:
                mixed = self._attend(attention, index, roles, read, positions, keys)
            case LatentAttention() as latent:
                mixed = self._attend_latent(latent, index, roles, read, positions)
            case _:
                assert_never(layer.mixer)
        mixed = normalise(layer.post_mixer, mixed, roles, "post_mixer")
        after = x + mixed * layer.residual_scale
        source = x if layer.is_parallel else after
        if not layer.is_parallel or layer.pre_feed_forward is not None:
            read = normalise(layer.pre_feed_forward, source, roles, "pre_feed_forward")
        fed = feed(layer.feed_forward, read, roles)
        fed = normalise(layer.post_feed_forward, fed, roles, "post_feed_forward")
        return after + fed * layer.residual_scale

    def _attend(
        self,
        spec: Attention,
        index: int,
        roles: Roles,
        x: torch.Tensor,
        positions: torch.Tensor,
        keys: Keys,
    ) -> torch.Tensor:
        query, key, value = _heads(spec, roles, x)
        query = _turned(spec, query, roles, "query_norm", positions)
        if spec.temperature is not None:
            steps = (positions + spec.temperature.first) // spec.temperature.length
            query = query * (1 + spec.temperature.strength * torch.log1p(steps))[:, None, None]
        if spec.keys_of is None:
            value = _clipped(spec, normalise(spec.value_norm, value, roles, "value_norm"))
            value = value * spec.value_scale
            keys[index] = _turned(spec, key, roles, "key_norm", positions), value
        key, value = keys[index if spec.keys_of is None else spec.keys_of]
        mixed = self._attention.forward(query, key, value, index)
        return linear(mixed.flatten(1), roles, "output")

    def _attend_latent(
        self,
        spec: LatentAttention,
        index: int,
        roles: Roles,
        x: torch.Tensor,
        positions: torch.Tensor,
    ) -> torch.Tensor:
        if spec.query_rank is None:
            query = linear(x, roles, "query")
        else:
            latent = normalise(spec.norm, linear(x, roles, "query_down"), roles, "query_norm")
            query = linear(latent, roles, "query_up")
        heads = (len(x), spec.num_heads, -1)
        plain, turned = torch.split(query.view(heads), [spec.plain_dim, spec.rope_dim], -1)
        query = torch.cat([plain, rotate(spec.rope, turned, positions)], -1)
        down = linear(x, roles, "kv_down")
        latent, shared = torch.split(down, [spec.kv_rank, spec.rope_dim], -1)
        latent = normalise(spec.norm, latent, roles, "kv_norm")
        made = linear(latent, roles, "kv_up").view(heads)
        plain, value = torch.split(made, [spec.plain_dim, spec.value_dim], -1)
        turned = rotate(spec.rope, shared[:, None], positions).expand(-1, spec.num_heads, -1)
        mixed = self._attention.forward(query, torch.cat([plain, turned], -1), value, index)
        return linear(mixed.flatten(1), roles, "output")


def linear(x: torch.Tensor, roles: Roles, role: str) -> torch.Tensor:
    """The product of rows with a role's matrix, and its bias if there is one."""
    return functional.linear(x, roles[role], roles.get(f"{role}_bias"))


def normalise(spec: Norm | None, x: torch.Tensor, roles: Roles, role: str) -> torch.Tensor:
    """Normalise the last dimension."""
    if spec is None:
        return x
    if spec.kind == "layer":
        x = x - x.mean(-1, keepdim=True)
    x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + spec.eps)
    if spec.has_weight:
        x = x * (roles[role] + spec.offset)
    return x + roles[f"{role}_bias"] if spec.has_bias else x


def rotate(rope: Rope | None, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Rotate heads ``[num_tokens, heads, dim]``."""
    if rope is None:
        return x
    angles = positions[:, None].float() * torch.tensor(rope.frequencies)
    cos, sin = (angles.cos() * rope.scale)[:, None], (angles.sin() * rope.scale)[:, None]
    turned, rest = x.tensor_split([2 * len(rope.frequencies)], -1)
    where = -1 if rope.pairs == "neighbours" else -2
    pairs = (-1, 2) if rope.pairs == "neighbours" else (2, -1)
    first, second = turned.reshape(*turned.shape[:2], *pairs).unbind(where)
    both = torch.stack([first * cos - second * sin, second * cos + first * sin], where)
    return torch.cat([both.flatten(-2), rest], -1)


def _heads(
    spec: Attention, roles: Roles, x: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values ``[num_tokens, heads, dim]``; without own keys they are empty."""
    role = "qkv"
    if spec.keys_of is not None or spec.values_are_keys:
        role = "query" if spec.keys_of is not None else "qk"
    rows = linear(x, roles, role)
    ends = [spec.num_heads * spec.head_dim]
    ends.append(ends[0] + spec.num_kv_heads * spec.head_dim)
    query, key, value = rows.tensor_split(ends, 1)
    if spec.values_are_keys:
        value = key
    dims = (spec.head_dim, spec.head_dim, spec.value_dim)
    query, key, value = (
        part.reshape(len(x), part.shape[1] // dim, dim)
        for part, dim in zip((query, key, value), dims, strict=True)
    )
    return query, key, value


def _turned(
    spec: Attention, x: torch.Tensor, roles: Roles, role: str, positions: torch.Tensor
) -> torch.Tensor:
    """Queries or keys, normalised and rotated."""
    norm = spec.head_norm
    if norm is not None and not norm.after_rope:
        x = _head_norm(norm, x, roles, role)
    x = rotate(spec.rope, _clipped(spec, x), positions)
    return x if norm is None or not norm.after_rope else _head_norm(norm, x, roles, role)


def _clipped(spec: Attention, x: torch.Tensor) -> torch.Tensor:
    return x if spec.clip is None else x.clamp(-spec.clip, spec.clip)


def _head_norm(spec: HeadNorm, x: torch.Tensor, roles: Roles, role: str) -> torch.Tensor:
    if spec.over == "all":
        return normalise(spec.norm, x.flatten(1), roles, role).view_as(x)
    return normalise(spec.norm, x, roles, role)


def _capped(x: torch.Tensor, cap: float | None) -> torch.Tensor:
    return x if cap is None else cap * torch.tanh(x / cap)


_FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_new": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu2": lambda x: functional.relu(x).square(),
}


def _activate(spec: Activation, x: torch.Tensor) -> torch.Tensor:
    return _FUNCTIONS[spec.name](x)


def _xielu(x: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
    """https://arxiv.org/abs/2411.13010, with a beta of 0.5."""
    positive, negative = functional.softplus(slopes)
    left = (torch.expm1(x.clamp(max=-1e-6)) - x) * (0.5 + negative)
    return torch.where(x > 0, positive * x * x, left) + 0.5 * x


def feed(spec: FeedForward | Mixture, x: torch.Tensor, roles: Roles) -> torch.Tensor:
    """Compute tokens ``[num_tokens, hidden]``."""
    match spec:
        case FeedForward():
            return _feed_forward(spec, x, roles)
        case Mixture():
            return _mixture(spec, x, roles)
        case _:
            assert_never(spec)


def _feed_forward(
    spec: FeedForward, x: torch.Tensor, roles: Roles, prefix: str = ""
) -> torch.Tensor:
    inner, activation = linear(x, roles, f"{prefix}up"), spec.activation
    if not spec.is_gated:
        if activation.name == "xielu":
            inner = _xielu(inner, roles[f"{prefix}slopes"])
        else:
            inner = _activate(activation, inner)
        return linear(inner, roles, f"{prefix}down")
    gate, up = inner.chunk(2, -1)
    if activation.limit is None:
        inner = _activate(activation, gate) * up
    else:
        gate = gate.clamp(max=activation.limit)
        up = up.clamp(-activation.limit, activation.limit) + 1
        inner = gate * torch.sigmoid(activation.alpha * gate) * up
    return linear(inner, roles, f"{prefix}down")


def _mixture(spec: Mixture, x: torch.Tensor, roles: Roles) -> torch.Tensor:
    chosen, weights = _route(spec.router, spec.per_token, linear(x, roles, "router"), roles)
    y = torch.zeros_like(x)
    for expert in range(spec.num_experts):
        tokens, places = (chosen == expert).nonzero(as_tuple=True)
        own = {role: roles[role][expert] for role in roles if role.startswith("experts_")}
        weight = weights[tokens, places, None]
        if spec.router.weighs_input:
            made = _feed_forward(spec.expert, x[tokens] * weight, own, "experts_")
        else:
            made = _feed_forward(spec.expert, x[tokens], own, "experts_") * weight
        y.index_add_(0, tokens, made)
    if spec.shared is None:
        return y
    shared = _feed_forward(spec.shared, x, roles, "shared_")
    return (
        y + shared * linear(x, roles, "shared_gate").sigmoid()
        if spec.has_shared_gate
        else y + shared
    )


def _route(
    spec: Router, per_token: int, logits: torch.Tensor, roles: Roles
) -> tuple[torch.Tensor, torch.Tensor]:
    """The chosen experts and their weights, ``[num_tokens, per_token]`` both."""
    scores = logits.softmax(-1) if spec.score == "softmax" else logits.sigmoid()
    choice = scores + roles["choice_bias"] if spec.has_choice_bias else scores
    if spec.num_groups > 1:
        groups = choice.view(len(choice), spec.num_groups, -1)
        best = groups.topk(2, -1).values.sum(-1).topk(spec.groups_chosen, -1).indices
        is_out = torch.ones(groups.shape[:2], dtype=torch.bool).scatter(1, best, value=False)
        choice = groups.masked_fill(is_out[..., None], float("-inf")).flatten(1)
    chosen = choice.topk(per_token, -1).indices
    weights = scores.gather(1, chosen)
    if spec.normalises:
        weights = weights / weights.sum(-1, keepdim=True)
    return chosen, weights * spec.scale


Roles: TypeAlias = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Weights:
    """The tensors outside of layers, and those of each layer."""

    top: Roles
    layers: tuple[Roles, ...]


def read_weights(tensors: Tensors, spec: DecoderSpec, names: Names) -> Weights:
    """Read every tensor of a spec.

    Raises Undescribed if one is missing, has another shape, or is left over.
    """
    reader = RoleReader(tensors, spec, names)
    top = {role: reader.whole(role, None, shape) for role, shape in spec.tensors()}
    layers = tuple(
        {role: reader.whole(role, i, shape) for role, shape in layer.tensors(spec.hidden_size)}
        for i, layer in enumerate(spec.layers)
    )
    reader.check_all_read()
    return Weights(top, layers)
