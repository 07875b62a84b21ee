"""``python -m core.proof``: prove the built-in model and a twin of each row.

The verdicts are kept beside the environment, in SHIPPED: the container image is made so.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core import builtin_model
from core.executors.supported import check_supported
from core.models.families import FAMILIES, describe
from core.models.spec import Undescribed
from core.proof.prove import prove
from core.proof.twin import LENGTH
from core.proof.verdict import SHIPPED, Verdict

_EXPERTS = {"n_routed_experts": 128, "num_experts_per_tok": 6}
_NEEDED: dict[str, dict[str, Any]] = {
    "dots1": {"n_shared_experts": 2, "first_k_dense_replace": 1, **_EXPERTS},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
}
"""Values for which a configuration class has no default."""


def values_of(family: str) -> dict[str, Any]:
    """The defaults of a family's class, as a ``config.json`` has them.

    Raises Undescribed if this release of transformers has no such class.
    """
    from transformers import CONFIG_MAPPING, AutoConfig  # noqa: PLC0415 - slow to import

    if family not in CONFIG_MAPPING:
        raise Undescribed("this release of transformers does not have it")
    config = AutoConfig.for_model(family, **_NEEDED.get(family, {}))
    values: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return values


def prove_rows(folder: Path) -> Iterator[tuple[str, Verdict | str]]:
    """Verdicts, or why there is none, by name. Verdicts are kept in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    own = json.loads((builtin_model.path() / "config.json").read_text("utf-8"))
    yield "built-in model", prove(own, repeats=True, folder=folder)
    for family in FAMILIES:
        try:
            values = values_of(family)
            check_supported(describe(values, LENGTH)[0])
        except Undescribed as error:
            yield family, str(error)
        else:
            yield family, prove(values, repeats=True, folder=folder)


def main() -> int:
    """Return 1 if a row is not exact."""
    is_wrong = False
    for name, verdict in prove_rows(SHIPPED):
        print(f"{name:<18}{verdict}", flush=True)
        is_wrong |= isinstance(verdict, Verdict) and not verdict.is_exact
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
