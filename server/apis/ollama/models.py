"""The served model as Ollama's clients see it."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from schemas.ollama_answer import LocalModel, ModelDetails, RunningModel, ShownModel
from server.generation.model import ServedModel

_LEVELS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
NEVER = "9999-12-31T23:59:59Z"


def time_text(seconds: float) -> str:
    """A time in Unix seconds, as Ollama writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def local_model(model: ServedModel, created: int) -> LocalModel:
    """An entry of /api/tags. ``created`` is in Unix seconds."""
    return LocalModel(modified_at=time_text(created), **_identity(model))


def running_model(model: ServedModel) -> RunningModel:
    """An entry of /api/ps. The model is never unloaded."""
    length = model.info.max_model_len
    return RunningModel(expires_at=NEVER, context_length=length, **_identity(model))


def _identity(model: ServedModel) -> dict[str, Any]:
    """Its names and details, and a name of what is served, in the form of a digest."""
    digest = hashlib.sha256(f"{model.name} {model.fingerprint}".encode()).hexdigest()
    return {"name": model.name, "model": model.name, "digest": digest, "details": _details(model)}


def shown_model(model: ServedModel, created: int) -> ShownModel:
    """The answer of /api/show."""
    families, architecture = model.families, _architecture(model)
    pooling = model.info.pooling
    capabilities = {
        "completion": pooling is None,
        "embedding": pooling is not None and pooling.task == "embed",
        "tools": families.template_shows_tools or families.writes_tools,
        "thinking": families.thinking_tags is not None,
        "insert": model.tokenizer.fim_token_ids() is not None,
    }
    return ShownModel(
        template=families.chat_template or "",
        details=_details(model),
        model_info={
            "general.architecture": architecture,
            "general.basename": model.name,
            f"{architecture}.context_length": model.info.max_model_len,
            f"{architecture}.vocab_size": model.info.vocab_size,
        },
        capabilities=[name for name, has_it in capabilities.items() if has_it],
        modified_at=time_text(created),
    )


def _details(model: ServedModel) -> ModelDetails:
    chosen = model.settings.model
    architecture = _architecture(model)
    is_gguf = chosen.gguf_file is not None or (chosen.model or "").endswith(".gguf")
    level = chosen.quantization.upper() if chosen.quantization != "none" else ""
    return ModelDetails(
        format="gguf" if is_gguf else "safetensors",
        family=architecture,
        families=[architecture],
        quantization_level=level or ("" if is_gguf else _LEVELS.get(model.info.dtype, "")),
    )


def _architecture(model: ServedModel) -> str:
    return model.info.architecture or "unknown"
