"""try_path: which path would compute a model, without loading its weights."""

from __future__ import annotations

from core.contract.config import EngineConfig, ModelConfig
from core.contract.info import ONE_CALL, ModelPath
from core.executors.described import described_and
from core.load.devices import pick_device


def try_path(model_config: ModelConfig, config: EngineConfig) -> ModelPath:
    """The path on a CPU. Raises ModelLoadError, and NotImplementedError where it is not known."""
    if pick_device(model_config.device).type != "cpu":
        raise NotImplementedError("the path on a GPU is not tried")
    one_call = ModelPath(name=ONE_CALL, expected=ONE_CALL)
    found = described_and(model_config, config.attention_backend, lambda _found: one_call)
    if isinstance(found, ModelPath):
        return found
    if not found.has_row:
        return ModelPath()
    return ModelPath(expected=ONE_CALL, slower_because=found.reason)
