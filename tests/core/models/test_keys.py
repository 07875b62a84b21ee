"""The keys of configurations: what an absent one means, and that none is new."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig

from core.models.config import Config, is_inert
from core.models.families import FAMILIES, describe
from core.models.spec import DecoderSpec, Undescribed
from core.models.table import table_of
from tests.core.models.cases import CASES, OLDER_FORMS
from tests.core.models.twins import config_of, needs_class

FIRST = {case.family: case for case in reversed(CASES)}


def plain(config: Any) -> dict[str, Any]:
    return json.loads(json.dumps(config.to_dict()))


def spec_of(values: dict[str, Any]) -> DecoderSpec | None:
    try:
        return describe(values, 256)[0]
    except Undescribed:
        return None


def class_makes(values: dict[str, Any]) -> dict[str, Any] | None:
    """None if the class refuses them, as it does most nulls."""
    try:
        return plain(AutoConfig.for_model(**values))
    except (StrictDataclassError, TypeError):
        return None


def test_every_family_has_a_case() -> None:
    assert FIRST.keys() == FAMILIES.keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_an_absent_key_or_null_is_what_the_class_makes_of_it_or_is_refused(family: str) -> None:
    values = plain(config_of(FIRST[family]))
    for key in values.keys() - {"model_type"}:
        without = {name: value for name, value in values.items() if name != key}
        for given in (without, values | {key: None}):
            spec = spec_of(given)
            made = None if spec is None else class_makes(given)
            assert made is None or spec == spec_of(made), key


@pytest.mark.parametrize("family", FAMILIES)
def test_every_key_of_the_class_is_read_or_known_to_be_inert(family: str) -> None:
    """A release of transformers with a new key fails here until its meaning is known."""
    needs_class(family)
    unknown = set(plain(AutoConfig.for_model(family)))
    for case in CASES:
        if case.family == family:
            config = Config(plain(config_of(case)), 256)
            FAMILIES[family].row(config)
            unknown -= config.read
    assert not {key for key in unknown if not is_inert(key)}


@pytest.mark.parametrize(("family", "older"), OLDER_FORMS, ids=lambda value: str(value)[:30])
def test_older_files_give_the_spec_that_their_class_gives(
    family: str, older: dict[str, Any]
) -> None:
    values = plain(config_of(FIRST[family]))
    values = {
        k: v for k, v in values.items() if k not in {"rope_parameters", "layer_types"}
    } | older
    assert describe(values, 256)[0] == spec_of(plain(AutoConfig.for_model(**values)))


UNKNOWN = [
    ({"model_type": "mamba2"}, "no row has the model_type 'mamba2'"),
    ({"use_alibi": True}, "use_alibi is True, which this row does not know"),
    ({"quantization_config": {"bits": 4}}, "quantization_config is"),
    ({"hidden_act": "mish"}, "hidden_act is 'mish'"),
    ({"hidden_size": None}, "hidden_size is missing"),
    ({"num_attention_heads": 0}, "num_attention_heads is 0"),
    ({"intermediate_size": "56"}, "size would be '56'"),
    ({"num_key_value_heads": -2}, "num_kv_heads would be -2"),
    ({"rms_norm_eps": float("inf")}, "eps would be inf"),
    ({"rope_parameters": {"rope_theta": -2.0}}, "the base of RoPE is -2.0"),
    ({"num_hidden_layers": 1 << 40}, "num_hidden_layers is 1099511627776"),
    ({"num_attention_heads": 4.0}, "num_attention_heads is 4.0"),
    ({"head_dim": 15}, "frequencies rotate 16 of 15 columns"),
    ({"rope_parameters": {"rope_type": "su"}}, "rope_type is 'su'"),
    ({"rope_parameters": {"rope_theta": 1e4, "mscale": 1.0}}, "mscale, which default does not use"),
    ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}}, "have no factor"),
    ({"partial_rotary_factor": 0.5, "rope_parameters": None, "rope_theta": 1e4}, "no meaning"),
]


@pytest.mark.parametrize(("fields", "reason"), UNKNOWN, ids=lambda value: str(value)[:30])
def test_what_no_row_knows_is_refused_by_its_key(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(Undescribed, match=re.escape(reason)):
        describe(plain(config_of(FIRST["llama"])) | fields, 256)


@pytest.mark.parametrize("family", ["deepseek_v3", "gpt_oss"])
def test_wrong_values_give_a_spec_that_can_be_printed_or_are_refused(family: str) -> None:
    values = plain(config_of(FIRST[family]))
    for key in values.keys() - {"model_type"}:
        for wrong in ("x", -1, 0, [], {}, [1], {"a": 1}, True, 7, float("inf")):
            spec = spec_of(values | {key: wrong})
            assert spec is None or (table_of(spec) and hash(spec))
