"""effective_parameters: the parameters of a request after defaults, for its record."""

from __future__ import annotations

from typing import Any

from server.job import Job


def effective_parameters(job: Job, *, with_texts: bool) -> dict[str, Any]:
    """The parameters of the first prompt as JSON's values.

    Lists of tokens and of texts are only counted; ``with_texts`` shows stop strings.
    """
    params = job.params[0]
    grammar, thinking = params.grammar, params.thinking
    parameters: dict[str, Any] = {
        "n": job.num_choices,
        "max_tokens": params.max_tokens,
        "min_tokens": params.min_tokens,
        "temperature": params.temperature,
        "top_k": params.top_k,
        "top_p": params.top_p,
        "min_p": params.min_p,
        "seed": params.seed,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "repetition_penalty": params.repetition_penalty,
        "ignore_eos": params.ignore_eos,
        "num_stop": len(params.stop) + len(params.stop_token_ids),
        "num_logit_bias": len(params.logit_bias),
        "num_bad_words": len(params.bad_words_ids),
        "logprobs": params.logprobs,
        "prompt_logprobs": params.prompt_logprobs,
        "grammar": None if grammar is None else grammar.__struct_config__.tag,
        "thinking_token_budget": None if thinking is None else thinking.budget,
        "priority": job.priority,
    }
    if with_texts:
        parameters["stop"] = list(params.stop)
    return parameters
