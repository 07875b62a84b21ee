"""Replacing a model's leaves, each proved equal to the original before it takes its place."""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from core.fusion import patterns as matchers
from core.fusion.cpu import layers
from core.fusion.cpu.decoder import FusedDecoder, is_known
from core.fusion.cpu.layer import Workspace
from core.fusion.cpu.linear import (
    JointLinear,
    JointProduct,
    PackedEmbedding,
    PackedHead,
    PlainEmbedding,
)
from core.fusion.cpu.norm import FusedNorm
from core.fusion.rotary import fused_rotation, has_rotary, install_rotation, original_rotation
from core.kernels.cpu.library import Kernels
from core.kernels.cpu.linear import Format
from core.layer_spec import LayerSpec
from core.model.plain import is_plain
from core.model.prequantised import is_quantised

logger = logging.getLogger("roseinfer.core")

NUM_PROOF_ROWS = 3

EXACT = 1e-4
"""Largest error of a replacement, in units of the largest output. What a bfloat16 checkpoint
stores is multiplied exactly, so only the order of a sum differs."""

ROUNDED = 2e-2
"""The same where the CPU multiplies bfloat16 by bfloat16, and so rounds what goes in."""

QUANTISED = 5e-2
"""The same for int8."""

_JOINT = ("q_proj", "k_proj", "v_proj")

Apply = Callable[[torch.Tensor], torch.Tensor]


def install_leaves(
    library: Kernels,
    model: Any,
    attention: list[tuple[nn.Module, LayerSpec]],
    fmt: Format,
) -> Counter[str]:
    """Replace what is known and equal, and make the rest float32. Counts what was installed.

    ``model`` is a causal language model of transformers on the CPU, in float32 or bfloat16, in
    evaluation mode; ``attention`` its attention modules. ``fmt`` is what matrices are stored in;
    the originals are freed as they are replaced. What of it came quantised stays as it is, and
    gets float32: so the model is in float32 then.
    """
    with torch.inference_mode():
        return _Installer(library, model, fmt).run(attention)


class _Installer:
    def __init__(self, library: Kernels, model: Any, fmt: Format) -> None:
        self._library = library
        self._model = model
        self._format = fmt
        self._tolerance = _tolerance(library, fmt)
        self._generator = torch.Generator().manual_seed(0)
        self._counts: Counter[str] = Counter()
        self._workspace = Workspace()

    def run(self, attention: list[tuple[nn.Module, LayerSpec]]) -> Counter[str]:
        self._head_and_embedding()
        for module, spec in attention:
            if not self._layer(module, spec):
                self._projections(module)
                self._rotation(module, spec)
        self._visit(self._model)
        if not is_quantised(self._model):  # transformers would refuse
            self._model.float()
        self._decoder(attention)
        return self._counts

    def _visit(self, parent: nn.Module) -> None:
        for name, child in list(parent.named_children()):
            if not self._replace(parent, name, child):
                self._visit(child)

    def _replace(self, parent: nn.Module, name: str, child: nn.Module) -> bool:
        library, fmt = self._library, self._format
        for kind, matcher in (("mlp", matchers.mlp), ("linear", matchers.linear)):
            fused = matcher(library, child, fmt)
            if fused is not None and self._is_equal(child, fused, _input_size(child)):
                return self._put(parent, name, fused, kind)
        norm = self._norm(child)
        return norm is not None and self._put(parent, name, norm, "norm")

    def _head_and_embedding(self) -> None:
        """The output layer, and the embedding, which often has the same weight."""
        model = self._model
        head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
        is_usual = type(embedding) is nn.Embedding and is_plain(embedding)
        matrix = matchers.matrix_of(head)
        if matrix is not None:
            packed = matchers.packed(self._library, [matrix], self._format)
            fused = PackedHead(packed)
            is_tied = is_usual and embedding.weight.data_ptr() == head.weight.data_ptr()
            if self._is_equal(head, fused, head.in_features):
                self._put(*_place(model, head), fused, "head")
                if is_tied:
                    self._put(*_place(model, embedding), PackedEmbedding(packed), "embedding")
                    return
        if is_usual:
            table = PlainEmbedding(embedding.weight.detach())
            self._put(*_place(model, embedding), table, "embedding")

    def _layer(self, attention: nn.Module, spec: LayerSpec) -> bool:
        """Replace the whole layer around an attention module; False if it is not a usual one."""
        layer, _ = _place(self._model, attention)
        with layers.plainly_attending([(attention, spec)]):
            fused = layers.fused_layer(
                *(self._library, layer, attention, spec),
                *(self._format, self._workspace, self._norm),
            )
            if fused is None:
                return False
            x = self._sample(fused.hidden_size)
            original = _in_float32(layer)
            if not layers.is_same_layer(original, fused, spec, x, self._is_close):
                return False
        for name, _ in list(attention.named_children()):
            delattr(attention, name)  # whose weights are packed now
        return self._put(*_place(self._model, layer), fused, "layer")

    def _decoder(self, attention: list[tuple[nn.Module, LayerSpec]]) -> None:
        """What goes around the layers, if all of them are fused."""
        name = getattr(self._model, "base_model_prefix", "")
        decoder = getattr(self._model, name, None)
        if decoder is None or not is_known(decoder):
            return
        fused = FusedDecoder(decoder, decoder.forward)
        ids = torch.arange(NUM_PROOF_ROWS)[None]
        batch = {"input_ids": ids, "position_ids": ids + 2, "use_cache": False}
        with layers.plainly_attending(attention):
            expected = decoder(**batch).last_hidden_state
            actual = fused(**batch).last_hidden_state
        if self._is_close(expected, actual, EXACT):
            decoder.forward = fused
            self._counts["decoder"] += 1

    def _norm(self, module: nn.Module) -> FusedNorm | None:
        """A norm that equals the module."""
        for norm in matchers.norms(self._library, module):
            if self._is_equal(module, norm, norm.size, tolerance=EXACT):
                return norm
        return None

    def _projections(self, module: nn.Module) -> None:
        """Query, key and value projections, as one product."""
        originals = [getattr(module, name, None) for name in _JOINT]
        matrices = [matchers.matrix_of(original) for original in originals]
        if any(matrix is None for matrix in matrices):
            return
        known = [matrix for matrix in matrices if matrix is not None]
        size = known[0][0].shape[1]
        if any(weight.shape[1] != size for weight, _ in known):
            return
        packed = matchers.packed(self._library, known, self._format)
        product = JointProduct(packed, [len(weight) for weight, _ in known])
        parts = [JointLinear(product, index) for index in range(len(known))]
        x = self._sample(size)
        if all(
            self._is_close(_in_float32(original)(x), part(x))
            for original, part in zip(originals, parts, strict=True)
        ):
            for name, part in zip(_JOINT, parts, strict=True):
                self._put(module, name, part, "linear")

    def _rotation(self, module: nn.Module, layer: LayerSpec) -> None:
        """Rotary embedding inside the attention's own code."""
        if not has_rotary(module):
            return
        original = original_rotation(module)
        fused = fused_rotation(self._library, original)
        q = self._random(1, layer.num_heads, NUM_PROOF_ROWS, layer.head_dim)
        k = self._random(1, layer.num_kv_heads, NUM_PROOF_ROWS, layer.head_dim)
        cos, sin = (self._random(1, NUM_PROOF_ROWS, layer.head_dim) for _ in range(2))
        try:
            expected = original(q, k, cos, sin)
        except (TypeError, ValueError, RuntimeError, IndexError):
            return
        pairs = zip(expected, fused(q, k, cos, sin), strict=True)
        if all(self._is_close(a, b, EXACT) for a, b in pairs):
            install_rotation(module, fused)
            self._counts["rotary"] += 1

    def _put(self, parent: nn.Module, name: str, module: nn.Module, kind: str) -> bool:
        setattr(parent, name, module)
        self._counts[kind] += 1
        return True

    def _is_equal(
        self, original: nn.Module, fused: Apply, size: int, tolerance: float | None = None
    ) -> bool:
        x = self._sample(size)
        return self._is_close(_in_float32(original)(x), fused(x), tolerance)

    def _is_close(
        self, expected: torch.Tensor, actual: torch.Tensor, tolerance: float | None = None
    ) -> bool:
        if expected.shape != actual.shape:
            return False
        bound = (self._tolerance if tolerance is None else tolerance) * expected.abs().max()
        return bool((expected - actual).abs().max() <= bound)

    def _sample(self, size: int) -> torch.Tensor:
        return self._random(1, NUM_PROOF_ROWS, size)

    def _random(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self._generator)


def _tolerance(library: Kernels, fmt: Format) -> float:
    if fmt is Format.INT8:
        return QUANTISED
    return ROUNDED if library.rounds_activations(fmt) else EXACT


def _in_float32(module: Any) -> Any:
    """Copy a module and its weights, which are to be multiplied in float32 for comparison."""
    return copy.deepcopy(module).float()


def _input_size(module: nn.Module) -> int:
    """Columns of the first matrix of a linear layer or a feed-forward block."""
    for candidate in (module, *module.children()):
        matrix = matchers.matrix_of(candidate)
        if matrix is not None:
            return matrix[0].shape[1]
    raise AssertionError


def _place(model: nn.Module, wanted: nn.Module) -> tuple[nn.Module, str]:
    """Where in the model a module hangs: its parent and its name there."""
    for parent in model.modules():
        for name, child in parent.named_children():
            if child is wanted:
                return parent, name
    raise AssertionError
