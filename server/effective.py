"""effective_parameters: the parameters of a request after defaults, for its record."""

from __future__ import annotations

from typing import Any

import msgspec

from server.job import Job

_COUNTED = ("stop", "stop_token_ids", "logit_bias", "bad_words_ids")
"""Texts and tokens, of which a record has the number."""


def effective_parameters(job: Job) -> dict[str, Any]:
    """The sampling parameters of the first prompt, as JSON's values.

    Lists of tokens and of texts are only counted, so a record has the size that its log counts
    for it. A grammar is the name of its kind, thinking its budget.
    """
    params = job.params[0]
    parameters = msgspec.structs.asdict(params)
    for name in _COUNTED:
        parameters[name] = len(parameters[name])
    if params.allowed_token_ids is not None:
        parameters["allowed_token_ids"] = len(params.allowed_token_ids)
    if params.grammar is not None:
        parameters["grammar"] = params.grammar.__struct_config__.tag
    if params.thinking is not None:
        parameters["thinking"] = params.thinking.budget
    parameters["n"] = job.num_choices
    parameters["priority"] = job.priority
    return parameters
