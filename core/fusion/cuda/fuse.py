"""Fewer and larger operations, for devices that pay for each launch.

Query, key and value projections become one product, and so do the two of a gated feed-forward
block; norms, the rotary embedding and activations become one operation each; what is added to the
residual stream is added in the product. Matrices may be quantised on the way. Each replacement is
proved equal to the original on the device before it takes its place.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional

from core.contract.config import Quantization
from core.fusion.cpu.linear import JointLinear, JointProduct
from core.fusion.cuda.ops import Activation, Ops
from core.fusion.cuda.quantised import FORMATS, QuantisedWeight
from core.fusion.cuda.residual import residual_layer
from core.fusion.patterns import Matrix, activation, matrix_of
from core.fusion.rotary import Rotation, has_rotary, install_rotation, original_rotation
from core.kernels.cpu.linear import Epilogue
from core.kernels.triton.head_norm import HeadNorm
from core.layer_spec import LayerSpec
from core.model.plain import activation_dtype

NUM_PROOF_ROWS = 3

TOLERANCE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Largest error of a replacement, in units of the largest output: the last bits differ."""

QUANTISED = {"int8": 5e-2, "fp8": 1e-1}
"""The same for matrices in 8 bits, by format."""

QUANTISED_PROOF_ROWS = (NUM_PROOF_ROWS, 24, 40, 100)
"""One of each tile size that products with quantised matrices are cut in."""

_JOINT = ("q_proj", "k_proj", "v_proj")
_GATED = ("gate_proj", "up_proj", "down_proj", "act_fn")
_ACTIVATIONS: dict[Epilogue, Activation] = {
    Epilogue.SILU: "silu",
    Epilogue.GELU_TANH: "gelu_tanh",
}


class Weight(Protocol):
    """Matrices with one input, below each other."""

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        """``x @ weight.T + bias`` of ``[..., in_features]``."""


class DenseWeight:
    """Matrices with one input, below each other."""

    def __init__(self, matrices: list[Matrix]) -> None:
        self._weight = torch.cat([weight for weight, _ in matrices])
        self._bias = None
        if any(bias is not None for _, bias in matrices):
            self._bias = torch.cat(
                [weight.new_zeros(len(weight)) if b is None else b for weight, b in matrices]
            )

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        """``x @ weight.T + bias`` of ``[..., in_features]``."""
        return functional.linear(x, self._weight, self._bias)


class WeightLinear(nn.Module):
    """A linear layer over a weight of ours."""

    def __init__(self, weight: Weight) -> None:
        super().__init__()
        self._weight = weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply ``[..., in_features]``."""
        return self._weight.multiply(x)


class FusedGatedMLP(nn.Module):
    """``down(activation(gate(x)) * up(x))`` with gate and up as one product."""

    def __init__(self, gate_up: Weight, act: Activation, down: nn.Module, ops: Ops) -> None:
        super().__init__()
        self.down_proj = down
        self._gate_up = gate_up
        self._activation: Activation = act
        self._ops = ops

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to ``[..., hidden_size]``."""
        gated = self._ops.gated(self._gate_up.multiply(x), self._activation)
        output: torch.Tensor = self.down_proj(gated)
        return output


class FusedRMSNorm(nn.Module):
    """RMSNorm over the last dimension in one operation."""

    def __init__(self, weight: torch.Tensor, eps: float, offset: float, ops: Ops) -> None:
        super().__init__()
        self._weight = weight.detach()
        self._eps = eps
        self._offset = offset
        self._ops = ops

    @property
    def numbers(self) -> tuple[torch.Tensor, float, float]:
        """Weight, epsilon and what is added to the weight."""
        return self._weight, self._eps, self._offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., size]``."""
        return self._ops.rms_norm(x, self._weight, self._eps, self._offset)


def fuse_leaves(
    model: nn.Module,
    attention: list[tuple[nn.Module, LayerSpec]],
    ops: Ops,
    quantization: Quantization = "none",
) -> Counter[str]:
    """Replace what is known and equal; counts what was installed.

    ``model`` is a causal language model of transformers in evaluation mode, ``attention`` its
    attention modules. The originals' weights are freed as they are replaced. With a
    ``quantization`` (which needs Triton) all linear layers are replaced, the output layer as well;
    an embedding keeps its table, also where the output layer had the same one.
    """
    with torch.inference_mode():
        return _Fuser(model, ops, quantization).run(attention)


class _Fuser:
    def __init__(self, model: nn.Module, ops: Ops, quantization: Quantization) -> None:
        self._model = model
        self._ops = ops
        self._device, self._dtype = next(model.parameters()).device, activation_dtype(model)
        self._generator = torch.Generator().manual_seed(0)
        self._counts: Counter[str] = Counter()
        self._is_quantised = quantization != "none"
        self._weight: Callable[[list[Matrix]], Weight] = DenseWeight
        if self._is_quantised:
            self._weight = functools.partial(QuantisedWeight, dtype=FORMATS[quantization])
        self._weight_tolerance = QUANTISED.get(quantization, TOLERANCE.get(self._dtype, 0.0))

    def run(self, attention: list[tuple[nn.Module, LayerSpec]]) -> Counter[str]:
        for module, layer in attention:
            self._projections(module)
            self._rotation(module, layer)
        self._visit(self._model)
        parents = {child: parent for parent in self._model.modules() for child in parent.children()}
        for module, layer in attention:
            self._head_norms(module, layer)
            self._residual(parents[module], module, layer)
        return self._counts

    def _visit(self, parent: nn.Module) -> None:
        for name, child in list(parent.named_children()):
            self._visit(self._replace(parent, name, child))

    def _replace(self, parent: nn.Module, name: str, child: nn.Module) -> nn.Module:
        """Whatever is in its place then."""
        for kind, (fused, size) in self._candidates(child):
            if self._is_equal([child], [fused], size, has_weight=kind in {"mlp", "linear"}):
                setattr(parent, name, fused)
                self._counts[kind] += 1
                return fused
        return child

    def _candidates(self, module: nn.Module) -> list[tuple[str, tuple[nn.Module, int]]]:
        """Replacements that may be equal, by kind, with the size of their input."""
        found = [("norm", candidate) for candidate in self._norms(module)]
        found += [("mlp", candidate) for candidate in self._gated_mlps(module)]
        is_gelu = "GELU" in type(module).__name__.upper() and type(module) is not nn.GELU
        if is_gelu and activation(module) is Epilogue.GELU_TANH:  # written out as many operations
            found += [("activation", (nn.GELU(approximate="tanh"), 64))]
        matrix = matrix_of(module) if self._is_quantised else None
        if matrix is not None:
            found += [("linear", (WeightLinear(self._weight([matrix])), matrix[0].shape[1]))]
        return found

    def _norms(self, module: Any) -> list[tuple[nn.Module, int]]:
        """Some families store the weight, some the weight less 1."""
        weight = getattr(module, "weight", None)
        eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
        if "RMSNorm" not in type(module).__name__ or weight is None or not isinstance(eps, float):
            return []
        return [
            (FusedRMSNorm(weight, eps, offset, self._ops), len(weight)) for offset in (0.0, 1.0)
        ]

    def _gated_mlps(self, module: nn.Module) -> list[tuple[nn.Module, int]]:
        children = dict(module.named_children())
        if not all(name in children for name in _GATED):
            return []
        gate, up = matrix_of(children["gate_proj"]), matrix_of(children["up_proj"])
        act = _ACTIVATIONS.get(activation(children["act_fn"]))  # type: ignore[arg-type]
        if gate is None or up is None or act is None or gate[0].shape != up[0].shape:
            return []
        fused = FusedGatedMLP(self._weight([gate, up]), act, children["down_proj"], self._ops)
        return [(fused, gate[0].shape[1])]

    def _projections(self, module: nn.Module) -> None:
        """Query, key and value projections, as one product."""
        originals: list[Any] = [getattr(module, name, None) for name in _JOINT]
        matrices = [m for m in map(matrix_of, originals) if m is not None]
        if len(matrices) < len(_JOINT) or len({weight.shape[1] for weight, _ in matrices}) > 1:
            return
        weight: Any = self._weight(matrices)
        product = JointProduct(weight, [len(weight) for weight, _ in matrices])
        parts = [JointLinear(product, index) for index in range(len(matrices))]
        if self._is_equal(originals, parts, matrices[0][0].shape[1], has_weight=True):
            for name, part in zip(_JOINT, parts, strict=True):
                setattr(module, name, part)
            self._counts["qkv"] += 1

    def _rotation(self, module: nn.Module, layer: LayerSpec) -> None:
        """Rotary embedding inside the attention's own code."""
        if not has_rotary(module):
            return
        original = original_rotation(module)
        fused = fused_rotation(original, self._ops)
        q = self._random(1, NUM_PROOF_ROWS, layer.num_heads, layer.head_dim).transpose(1, 2)
        k = self._random(1, NUM_PROOF_ROWS, layer.num_kv_heads, layer.head_dim).transpose(1, 2)
        cos, sin = (self._random(1, NUM_PROOF_ROWS, layer.head_dim) for _ in range(2))
        try:
            expected = original(q, k, cos, sin)
        except (TypeError, ValueError, RuntimeError, IndexError):
            return
        actual = fused(q.clone(), k.clone(), cos, sin)
        if all(self._is_close(a, b) for a, b in zip(expected, actual, strict=True)):
            install_rotation(module, fused)
            self._counts["rotary"] += 1

    def _head_norms(self, module: Any, layer: LayerSpec) -> None:
        """The norms of each head's query and key, where they come right before the rotation."""
        norms = getattr(module, "q_norm", None), getattr(module, "k_norm", None)
        norm = _head_norm(*norms, layer.head_dim)
        if norm is None or not has_rotary(module):
            return
        hidden, cos, sin = self._layer_input(layer)
        forward, expected = module.forward, _attended(module, hidden, cos, sin)
        install_rotation(module, fused_rotation(original_rotation(module), self._ops, norm))
        module.q_norm = module.k_norm = nn.Identity()
        actual = _attended(module, hidden, cos, sin)
        if len(expected) == len(actual) > 0 and all(map(self._is_close, expected, actual)):
            self._counts["head norm"] += 1
        else:
            module.forward = forward
            module.q_norm, module.k_norm = norms

    def _residual(self, layer: Any, module: nn.Module, spec: LayerSpec) -> None:
        """The sums of a decoder layer, inside its products."""
        fused = residual_layer(layer)
        if fused is None:
            return
        hidden, cos, sin = self._layer_input(spec)
        expected = _layer_output(layer, module, hidden.clone(), cos, sin)
        fused.install()
        actual = _layer_output(layer, module, hidden.clone(), cos, sin)
        if expected is not None and actual is not None and self._is_close(expected, actual):
            self._counts["residual"] += 1
        else:
            fused.uninstall()

    def _layer_input(self, layer: LayerSpec) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Hidden states, and cosines and sines of positions."""
        config: Any = self._model.config
        hidden = self._random(1, NUM_PROOF_ROWS, config.get_text_config().hidden_size)
        cos, sin = (self._random(1, NUM_PROOF_ROWS, layer.head_dim) for _ in range(2))
        return hidden, cos, sin

    def _is_equal(
        self, originals: list[Any], replacements: list[Any], size: int, *, has_weight: bool
    ) -> bool:
        """Whether modules with one input do the same as others."""
        tolerance = self._weight_tolerance if has_weight else None
        is_tiled = has_weight and self._is_quantised
        for num_rows in QUANTISED_PROOF_ROWS if is_tiled else (NUM_PROOF_ROWS,):
            x = self._random(1, num_rows, size)
            for original, replacement in zip(originals, replacements, strict=True):
                if not self._is_close(original(x), replacement(x), tolerance):
                    return False
        return True

    def _is_close(
        self, expected: torch.Tensor, actual: torch.Tensor, tolerance: float | None = None
    ) -> bool:
        if expected.shape != actual.shape or expected.dtype != actual.dtype:
            return False
        if tolerance is None:
            tolerance = TOLERANCE.get(self._dtype, 0.0)
        bound = tolerance * expected.abs().max()
        return bool((expected - actual).abs().max() <= bound)

    def _random(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self._generator).to(self._device, self._dtype)


def _head_norm(q_norm: object, k_norm: object, head_dim: int) -> HeadNorm | None:
    """Both norms as one thing, if they are alike and each over the numbers of a head."""
    if not isinstance(q_norm, FusedRMSNorm) or not isinstance(k_norm, FusedRMSNorm):
        return None
    q_weight, q_eps, q_offset = q_norm.numbers
    k_weight, k_eps, k_offset = k_norm.numbers
    if not len(q_weight) == len(k_weight) == head_dim or (q_eps, q_offset) != (k_eps, k_offset):
        return None
    return HeadNorm(q_weight, k_weight, q_eps, q_offset)


def _attended(
    module: Any, hidden: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> list[torch.Tensor]:
    """Query and key as an attention module gives them to attention; nothing if it cannot be run."""
    found: list[torch.Tensor] = []

    def take(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: object
    ) -> torch.Tensor:
        found.extend((query.clone(), key.clone()))
        return value.new_zeros(*query.shape[:2], value.shape[2])

    module.roseinfer_attention = take
    try:
        module(hidden_states=hidden, position_embeddings=(cos, sin), attention_mask=None)
    except (TypeError, ValueError, RuntimeError, IndexError, KeyError, AttributeError):
        return []
    finally:
        del module.roseinfer_attention
    return found


def _layer_output(
    layer: Any, module: Any, hidden: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor | None:
    """What a layer gives with some attention; None if it cannot be run."""

    def attend(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: object
    ) -> torch.Tensor:
        return value.repeat_interleave(query.shape[1] // key.shape[1], dim=1)

    module.roseinfer_attention = attend
    try:
        output = layer(hidden, position_embeddings=(cos, sin), attention_mask=None)
    except (TypeError, ValueError, RuntimeError, IndexError, KeyError, AttributeError):
        return None
    finally:
        del module.roseinfer_attention
    return output if isinstance(output, torch.Tensor) else None


def fused_rotation(original: Rotation, ops: Ops, norm: HeadNorm | None = None) -> Rotation:
    """Return a stand-in for ``original``, which still gets every call of an unusual shape.

    With a ``norm``, that of each head comes first. What it is given may be overwritten.
    """

    def rotate(
        q: torch.Tensor,
        k: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        *more: Any,
        **named: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        is_usual = q.dim() == 4 and q.shape[0] == 1 and cos.shape == (1, q.shape[2], q.shape[3])
        if more or named or not is_usual or any(t.stride(-1) != 1 for t in (q, k, cos, sin)):
            if norm is not None:
                q = ops.rms_norm(q, norm.query_weight, norm.epsilon, norm.offset)
                k = ops.rms_norm(k, norm.key_weight, norm.epsilon, norm.offset)
            return original(q, k, cos, sin, *more, **named)
        query, key = q[0].transpose(0, 1), k[0].transpose(0, 1)  # [num_tokens, heads, dim]
        query, key = ops.rotate(query, key, cos[0], sin[0], norm)
        return query.transpose(0, 1)[None], key.transpose(0, 1)[None]

    return rotate
