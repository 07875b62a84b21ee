"""The small operations of a model as Triton kernels."""

from __future__ import annotations

import torch

from core.contract.errors import ModelLoadError
from core.fusion.patterns import Activation
from core.kernels.triton.head_norm import QueryKeyNorm


class TritonOps:
    """One launch for each operation. Results have the type of the input; sums are float32."""

    def __init__(self) -> None:
        """Raises ModuleNotFoundError without Triton."""
        from core.kernels.triton import gated, norm, rotary  # noqa: PLC0415 - needs Triton

        self._gated = gated.gated
        self._rms_norm = norm.rms_norm
        self._rotate = rotary.rotate_

    def rms_norm(
        self, states: torch.Tensor, weight: torch.Tensor, eps: float, offset: float
    ) -> torch.Tensor:
        """Normalise ``[..., size]`` and multiply by ``weight + offset``."""
        return self._rms_norm(states, weight, eps, weight_offset=offset)

    def gated(self, gate_up: torch.Tensor, activation: Activation) -> torch.Tensor:
        """``activation(gate) * up`` of ``[..., 2 * size]``, the gate first."""
        return self._gated(gate_up, activation)

    def rotate(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        norm: QueryKeyNorm | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Apply RoPE to ``[num_tokens, heads, dim]`` by ``[num_tokens, dim]``, in place.

        With a ``norm``, each head is normalised first.
        """
        self._rotate(query, key, cos, sin, norm)
        return query, key


def triton_ops(device: torch.device) -> TritonOps:
    """Return the operations after compiling and running one. Raises ModelLoadError."""
    try:
        ops = TritonOps()
        ones = torch.ones(1, 16, device=device)
        ops.rms_norm(ones, ones[0], 1e-6, 0.0)
    except ModuleNotFoundError as error:
        raise ModelLoadError(f"CUDA needs Triton, which is not installed ({error})") from error
    except Exception as error:  # no C compiler, no folder to write to, an unsupported device
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ModelLoadError(f"CUDA needs Triton, which does not work here: {reason}") from error
    return ops
