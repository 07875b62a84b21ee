"""FeedBuilder: the kernels' arguments of feed-forwards and mixtures."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional

from core.executors.role_packer import RolePacker
from core.executors.rows import kinds_of, split, split_groups
from core.executors.supported import epilogue_of, unsupported
from core.gguf.blocks import BlockMatrix
from core.kernels.cpu.linear import GroupedWeight, PackedWeight
from core.kernels.cpu.structures import LayerCall, Matrices, Matrix, MixtureCall
from core.models import spec as specs
from core.models.spec import FeedForward, Shape
from core.weights.roles import Group, Weight


class FeedBuilder:
    """Packs the weights of a layer behind its mixer. ``shapes`` are those of the layer's roles."""

    def __init__(self, of: RolePacker, index: int, shapes: Mapping[str, Shape]) -> None:
        self._of, self._index, self._shapes = of, index, shapes

    def _matrix(self, role: str, bias: bool) -> PackedWeight:
        return self._of.matrix(role, self._index, self._shapes[role], bias)

    def _whole(self, role: str) -> torch.Tensor:
        return self._of.reader.whole(role, self._index, self._shapes[role])

    def _bias(self, role: str, has_bias: bool) -> torch.Tensor | None:
        return self._of.bias(role, self._index, self._shapes[role]) if has_bias else None

    def _slopes(self, spec: FeedForward, prefix: str) -> torch.Tensor | None:
        """The slopes of xIELU; None for other activations."""
        if spec.activation.name != "xielu":
            return None
        return self._of.keep(functional.softplus(self._whole(f"{prefix}slopes")))

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
        parts = self._of.matrices(role, self._index, self._shapes[role])
        weights, bias = split(parts, [spec.size, spec.size]), self._bias(role, spec.has_bias)
        return list(zip(weights, (None, None) if bias is None else bias.chunk(2), strict=True))

    def mixture(self, spec: specs.Mixture) -> MixtureCall:
        """Pack a mixture; returns its arguments."""
        of, bias = self._of, self._bias("router", spec.router.has_bias)
        router = of.keep(self._exact("router", bias))
        up, down = self._experts(spec)
        mixture = MixtureCall(
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
            mixture.choice_bias = of.keep(self._whole("choice_bias")).data_ptr()
        if spec.shared is not None:
            mixture.shared_up, mixture.shared_down = self.dense(spec.shared, "shared_")
            if spec.has_shared_gate:
                mixture.shared_gate = Matrix.of(of.keep(self._exact("shared_gate", None)))
        return mixture

    def _groups(self, role: str) -> list[Group]:
        return self._of.reader.groups(role, self._index, self._shapes[role])

    def _exact(self, role: str, bias: torch.Tensor | None) -> PackedWeight:
        return self._of.packer.exact(self._whole(role), bias)

    def _experts(self, spec: specs.Mixture) -> tuple[GroupedWeight, GroupedWeight]:
        of, expert = self._of, spec.expert
        bias = self._bias("experts_up", expert.has_bias)
        down_bias = self._bias("experts_down", expert.has_bias)
        first, second = self._groups("experts_up"), self._groups("experts_down")
        if expert.is_gated:
            first = split_groups(first, spec.num_experts, expert.size)
            up = self._gated(first, spec.num_experts, None if bias is None else bias.chunk(2, 1))
        else:
            up = self._plain_groups(first, spec.num_experts, bias)
        if up is None:
            raise unsupported(f"experts of {expert.size} columns in {kinds_of(first)}")
        down = self._plain_groups(second, spec.num_experts, down_bias)
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
