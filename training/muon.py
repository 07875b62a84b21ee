"""Muon: an optimiser with momentum that orthogonalizes the updates of matrices."""

from collections.abc import Iterable

import torch

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Move all singular values of a stack of matrices close to one (Newton-Schulz iteration)."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    result: torch.Tensor = x.mT if tall else x
    return result


class Muon:
    """The optimiser of two-dimensional weights; it updates matrices of one shape together."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], momentum: float = 0.95) -> None:
        self.momentum = momentum
        groups: dict[torch.Size, list[torch.nn.Parameter]] = {}
        for parameter in parameters:
            groups.setdefault(parameter.shape, []).append(parameter)
        self.groups = [(group, torch.zeros(len(group), *shape)) for shape, group in groups.items()]

    @torch.no_grad()
    def step(self, rate: float, decay: float) -> None:
        """Update every weight; ``rate`` is the root mean square change of an element."""
        for group, average in self.groups:
            gradient = torch.stack([p.grad for p in group if p.grad is not None])
            average.lerp_(gradient, 1 - self.momentum)
            update = orthogonal(torch.lerp(gradient, average, self.momentum))
            scale = rate * max(update.shape[-2:]) ** 0.5
            for parameter, change in zip(group, update, strict=True):
                parameter.mul_(1 - rate * decay).sub_(change, alpha=scale)
                parameter.grad = None
