import math

import msgspec
import pytest

from core.contract.errors import ContextLengthExceeded, InvalidRequest, RoseInferError
from core.contract.params import GREEDY_TEMPERATURE, MAX_TOP_LOGPROBS, SamplingParams
from tests.support.builders import make_params
from tests.support.each import each

LOW = "below_min_value"
HIGH = "above_max_value"


@each(
    ("field", "value", "code"),
    [
        ("temperature", -0.1, f"decimal_{LOW}"),
        ("temperature", math.nan, f"decimal_{LOW}"),
        ("temperature", -math.inf, f"decimal_{LOW}"),
        ("top_p", -0.1, f"decimal_{LOW}"),
        ("top_p", 1.01, f"decimal_{HIGH}"),
        ("top_p", math.inf, f"decimal_{HIGH}"),
        ("top_p", math.nan, f"decimal_{LOW}"),
        ("min_p", -0.1, f"decimal_{LOW}"),
        ("min_p", 1.1, f"decimal_{HIGH}"),
        ("top_k", -1, f"integer_{LOW}"),
        ("max_tokens", -1, f"integer_{LOW}"),
        ("min_tokens", -1, f"integer_{LOW}"),
        ("presence_penalty", -2.1, f"decimal_{LOW}"),
        ("presence_penalty", 2.1, f"decimal_{HIGH}"),
        ("presence_penalty", math.nan, f"decimal_{LOW}"),
        ("frequency_penalty", -2.1, f"decimal_{LOW}"),
        ("frequency_penalty", 2.1, f"decimal_{HIGH}"),
        ("repetition_penalty", 0.0, f"decimal_{LOW}"),
        ("repetition_penalty", -1.0, f"decimal_{LOW}"),
        ("repetition_penalty", math.nan, f"decimal_{LOW}"),
        ("repetition_penalty", math.inf, f"decimal_{HIGH}"),
        ("repetition_penalty", 1e-300, f"decimal_{LOW}"),
        ("repetition_penalty", 1e39, f"decimal_{HIGH}"),
        ("logprobs", -1, f"integer_{LOW}"),
        ("logprobs", MAX_TOP_LOGPROBS + 1, f"integer_{HIGH}"),
        ("prompt_logprobs", -1, f"integer_{LOW}"),
        ("prompt_logprobs", MAX_TOP_LOGPROBS + 1, f"integer_{HIGH}"),
        ("stop", ("fine", ""), "invalid_value"),
        ("allowed_token_ids", (), "empty_array"),
    ],
)
def test_values_out_of_range_are_refused_by_name(field, value, code):
    with pytest.raises(InvalidRequest) as refused:
        make_params(**{field: value})
    assert (refused.value.param, refused.value.code) == (field, code)
    assert field in refused.value.message
    assert str(refused.value) == refused.value.message


def test_infinite_temperature_is_refused():
    with pytest.raises(InvalidRequest) as refused:
        make_params(temperature=math.inf)
    assert refused.value.param == "temperature"


@each(
    ("field", "value"),
    [
        ("temperature", 0.0),
        ("temperature", 1000.0),
        ("top_p", 0.0),
        ("top_p", 1.0),
        ("min_p", 1.0),
        ("top_k", 0),
        ("top_k", 10**9),
        ("max_tokens", 0),
        ("min_tokens", 8),
        ("presence_penalty", -2.0),
        ("frequency_penalty", 2.0),
        ("repetition_penalty", 0.01),
        ("logprobs", 0),
        ("logprobs", MAX_TOP_LOGPROBS),
        ("prompt_logprobs", 0),
        ("allowed_token_ids", (1,)),
        ("stop", ("a",)),
        ("seed", -(2**63)),
    ],
)
def test_the_bounds_of_the_ranges_are_valid(field, value):
    assert getattr(make_params(**{field: value}), field) == value


def test_min_tokens_cannot_exceed_max_tokens():
    with pytest.raises(InvalidRequest) as refused:
        make_params(max_tokens=3, min_tokens=4)
    assert (refused.value.param, refused.value.code) == (
        "min_tokens",
        "invalid_parameter_combination",
    )
    assert "4" in refused.value.message
    assert "3" in refused.value.message


def test_a_low_temperature_is_greedy():
    assert make_params(temperature=0.0).is_greedy
    assert make_params(temperature=GREEDY_TEMPERATURE / 2).is_greedy
    assert not make_params(temperature=GREEDY_TEMPERATURE).is_greedy
    assert not make_params().is_greedy


@pytest.mark.parametrize(
    "fields", [{"presence_penalty": 0.1}, {"frequency_penalty": -1.0}, {"repetition_penalty": 1.1}]
)
def test_each_penalty_is_detected(fields):
    assert make_params(**fields).has_penalties
    assert not make_params().has_penalties


def test_params_are_frozen_and_share_no_state():
    params = make_params()
    with pytest.raises(AttributeError):
        params.temperature = 0.5
    assert params.logit_bias is not make_params().logit_bias


def test_decoded_and_replaced_params_are_checked_too():
    with pytest.raises(InvalidRequest):
        msgspec.json.decode(b'{"max_tokens": 1, "top_p": 2.0}', type=SamplingParams)
    with pytest.raises(InvalidRequest):
        msgspec.structs.replace(make_params(), top_p=2.0)


def test_a_context_length_error_is_an_invalid_request():
    error = ContextLengthExceeded("too long", param="messages")
    assert isinstance(error, InvalidRequest)
    assert isinstance(error, RoseInferError)
    assert (error.code, error.param) == ("context_length_exceeded", "messages")
