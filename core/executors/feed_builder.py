"""FeedBuilder: the kernels' arguments of feed-forwards and mixtures."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional

from core.executors.role_packer import RolePacker
from core.executors.rows import kinds_of, split, split_groups
from core.executors.supported import epilogue_of, unsupported
from core.gguf.blocks import BlockMatrix
from core.kernels.cpu.grouped import GroupedWeight
from core.kernels.cpu.layer import LayerCall, Matrices, Matrix, Mixture
from core.kernels.cpu.linear import PackedWeight
from core.models import spec as specs
from core.models.spec import FeedForward, Shape
from core.weights.roles import Group, Weight


class FeedBuilder:
    """Packs what a layer has behind its mixer. ``shapes`` are those of the layer's roles."""

    def __init__(self, of: RolePacker, index: int, shapes: Mapping[str, Shape]) -> None:
        self._of, self._index, self._shapes = of, index, shapes

    def _matrix(self, role: str, bias: bool) -> PackedWeight:
        return self._of.matrix(role, self._index, self._shapes[role], bias)

    def _slopes(self, spec: FeedForward, prefix: str) -> torch.Tensor | None:
        """Those of xIELU."""
        if spec.activation.name != "xielu":
            return None
        role = f"{prefix}slopes"
        raw = self._of.reader.whole(role, self._index, self._shapes[role])
        return self._of.keep(functional.softplus(raw))

    def fill(self, call: LayerCall, spec: FeedForward) -> int:
        """Set the arguments of a layer's feed-forward; returns the columns between its products.

        Gates and ups that cannot be interleaved are one matrix in parts, which is gated behind it.
        """
        call.down = Matrix.of(self._matrix("down", spec.has_bias))
        if not spec.is_gated:
            call.up = self._ungated(spec, "up")
            return spec.size
        of, pair, epilogue = self._of, self._pair(spec, "up"), epilogue_of(spec)
        both = of.packer.interleave(*pair)
        if both is not None:
            call.up = Matrix.of(of.keep(both), epilogue)
            return spec.size
        call.up, call.gate = Matrix.of(of.keep(of.packer.stack(pair))), epilogue
        return 2 * spec.size

    def dense(self, spec: FeedForward, prefix: str) -> tuple[Matrix, Matrix]:
        """Both products of another feed-forward. Raises Undescribed if they must be gated apart."""
        role = f"{prefix}up"
        down = Matrix.of(self._matrix(f"{prefix}down", spec.has_bias))
        if not spec.is_gated:
            return self._ungated(spec, role), down
        pair = self._pair(spec, role)
        both = self._of.packer.interleave(*pair)
        if both is None:
            kinds = kinds_of([weight for weight, _ in pair])
            raise unsupported(f"gates and ups of {spec.size} columns in {kinds}")
        return Matrix.of(self._of.keep(both), epilogue_of(spec)), down

    def _ungated(self, spec: FeedForward, role: str) -> Matrix:
        only = self._matrix(role, spec.has_bias)
        return Matrix.of(only, epilogue_of(spec), self._slopes(spec, role.removesuffix("up")))

    def _pair(self, spec: FeedForward, role: str) -> list[tuple[Weight, torch.Tensor | None]]:
        """Gates and ups with their biases."""
        of, i, shape = self._of, self._index, self._shapes[role]
        weights = split(of.matrices(role, i, shape), [spec.size, spec.size])
        biases = of.bias(role, i, shape).chunk(2) if spec.has_bias else (None, None)
        return list(zip(weights, biases, strict=True))

    def mixture(self, spec: specs.Mixture) -> Mixture:
        of, i, shapes = self._of, self._index, self._shapes
        bias = of.bias("router", i, shapes["router"]) if spec.router.has_bias else None
        router = of.keep(self._exact("router", bias))
        up, down = self._experts(spec)
        mixture = Mixture(
            router=Matrix.of(router),
            per_token=spec.per_token,
            normalises=int(spec.router.normalises),
            up=Matrices.of(up, epilogue_of(spec.expert)),
            down=Matrices.of(down),
            is_sigmoid=int(spec.router.score == "sigmoid"),
            num_groups=spec.router.num_groups,
            groups_chosen=spec.router.groups_chosen,
            scale=spec.router.scale,
            weighs_input=int(spec.router.weighs_input),
        )
        if spec.router.has_choice_bias:
            choice_bias = of.keep(of.reader.whole("choice_bias", i, shapes["choice_bias"]))
            mixture.choice_bias = choice_bias.data_ptr()
        if spec.shared is not None:
            mixture.shared_up, mixture.shared_down = self.dense(spec.shared, "shared_")
            if spec.has_shared_gate:
                mixture.shared_gate = Matrix.of(of.keep(self._exact("shared_gate", None)))
        return mixture

    def _exact(self, role: str, bias: torch.Tensor | None) -> PackedWeight:
        return self._of.packer.exact(
            self._of.reader.whole(role, self._index, self._shapes[role]), bias
        )

    def _experts(self, spec: specs.Mixture) -> tuple[GroupedWeight, GroupedWeight]:
        of, i, shapes, expert = self._of, self._index, self._shapes, spec.expert
        biases: dict[str, torch.Tensor | None] = {"experts_up": None, "experts_down": None}
        if expert.has_bias:
            biases = {role: of.bias(role, i, shapes[role]) for role in biases}
        first = self._of.reader.groups("experts_up", i, shapes["experts_up"])
        second = self._of.reader.groups("experts_down", i, shapes["experts_down"])
        bias = biases["experts_up"]
        if expert.is_gated:
            first = split_groups(first, spec.num_experts, expert.size)
            up = self._gated(first, spec.num_experts, None if bias is None else bias.chunk(2, 1))
        else:
            up = self._plain_groups(first, spec.num_experts, bias)
        if up is None:
            raise unsupported(f"experts of {expert.size} columns in {kinds_of(first)}")
        down = self._plain_groups(second, spec.num_experts, biases["experts_down"])
        assert down is not None
        return of.keep(up), of.keep(down)

    def _gated(
        self, halves: list[Group], count: int, biases: tuple[torch.Tensor, ...] | None
    ) -> GroupedWeight | None:
        packer = self._of.packer
        blocks = [half for half in halves if isinstance(half, BlockMatrix)]
        if len(blocks) == len(halves):
            return packer.block_groups(blocks, count, is_gated=True, biases=biases)
        tensors = [half for half in halves if not isinstance(half, BlockMatrix)]
        return packer.gated_groups(tensors, biases) if len(tensors) == len(halves) else None

    def _plain_groups(
        self, groups: list[Group], count: int, bias: torch.Tensor | None
    ) -> GroupedWeight | None:
        [group] = groups
        if isinstance(group, BlockMatrix):
            biases = None if bias is None else [bias]
            return self._of.packer.block_groups([group], count, biases=biases)
        return self._of.packer.groups(group, bias)
