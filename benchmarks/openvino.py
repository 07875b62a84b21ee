"""OpenVINO GenAI as a contender. It has no server, so its pipeline runs in a process of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers import OFFLINE, BenchModel, packages
from benchmarks.probe import num_cores

CACHE_GIB = 4
"""GiB of KV cache."""

WEIGHTS = {"fp16": "bfloat16", "int8": "int8"}
"""Type of the exported files -> type of the weights in the results. It computes in bfloat16."""


@dataclass(frozen=True, kw_only=True)
class OpenVino:
    """OpenVINO GenAI's continuous batching without HTTP, which flatters it beside servers.

    ``python`` is an interpreter with openvino-genai and msgspec. ``kind``: fp16 or int8.
    """

    python: Path
    kind: str = "fp16"
    is_in_process: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return "OpenVINO bf16" if self.kind == "fp16" else f"OpenVINO {self.kind}"

    @property
    def weights(self) -> str:
        return WEIGHTS[self.kind]

    @property
    def is_variant(self) -> bool:
        return self.kind != "fp16"

    def missing(self, model: BenchModel) -> str | None:
        if model.openvino is None:
            return "--openvino-models is not given"
        folder = self._folder(model)
        return None if folder.is_dir() else f"{folder} does not exist"

    def command(self, model: BenchModel, port: int) -> list[str]:  # noqa: ARG002
        return [
            *(str(self.python), "-m", "benchmarks.openvino_child", str(self._folder(model))),
            *("--max-model-len", str(model.shape.max_model_len)),
            *("--slots", str(model.slots), "--threads", str(num_cores())),
            *("--cache-gib", str(CACHE_GIB)),
        ]

    def environment(self, model: BenchModel) -> dict[str, str]:  # noqa: ARG002
        return dict(OFFLINE)

    def model_name(self, model: BenchModel) -> str:
        return str(self._folder(model))

    def versions(self) -> str:
        return packages(self.python, "openvino-genai", "openvino")

    def _folder(self, model: BenchModel) -> Path:
        assert model.openvino is not None
        return model.openvino / f"{model.name}-{self.kind}"
