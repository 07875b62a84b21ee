"""try_path: which path would compute a model, without loading its weights."""

from __future__ import annotations

from core.contract.config import EngineConfig, ModelConfig
from core.contract.info import ONE_CALL, ModelPath
from core.executors.described import described
from core.model.devices import pick_device
from core.models.spec import NoRow, Undescribed


def try_path(model_config: ModelConfig, config: EngineConfig) -> ModelPath:
    """The path on a CPU. Raises ModelLoadError, and NotImplementedError where it is not known."""
    if pick_device(model_config.device).type != "cpu":
        raise NotImplementedError("the path on a GPU is not tried")
    try:
        described(model_config, config.attention_backend)
    except NoRow:
        return ModelPath()
    except Undescribed as error:
        return ModelPath(expected=ONE_CALL, slower_because=str(error))
    return ModelPath(name=ONE_CALL, expected=ONE_CALL)
