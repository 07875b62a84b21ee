"""raw_job: a text to continue, answered in Ollama's form."""

from __future__ import annotations

from functools import partial

from schemas.completions import CompletionRequest
from server.grammars import NewGrammars
from server.job import Job
from server.render.chat_options import ChatOptions
from server.render.ollama.lines import generate_line
from server.render.ollama.renderer import OllamaRenderer
from server.served_model import ServedModel
from server.translate.formats import output_format
from server.translate.params import answer_length, sampling_params
from server.translate.prompt_size import size_check
from server.translate.prompts import completion_prompts
from server.translate.response import check_shared_fields, new_envelope, new_job
from server.translate.unsupported import refuse_unsupported


def raw_job(request: CompletionRequest, model: ServedModel) -> Job:
    """Check the fields and tokenize. Raises InvalidRequest."""
    model.check_generates()
    check_shared_fields(request)
    refuse_unsupported(request)
    check = partial(size_check, request, model)
    [prompt] = completion_prompts(
        request,
        model.tokenizer,
        check_size=check(param="prompt"),
        check_suffix=check(param="suffix"),
    )
    new_grammars = NewGrammars(model.grammar_compiler)
    grammar, format_param = output_format(request)
    if grammar is not None:
        new_grammars.note(grammar, param=format_param)
    max_tokens = answer_length(
        prompt.token_ids, request.max_tokens, model.info, param="prompt", is_clamped=True
    )
    params = sampling_params(
        request,
        max_tokens=max_tokens,
        logprobs=request.logprobs,
        echo_logprobs=None,
        info=model.info,
        tokenizer=model.tokenizer,
        grammar=grammar,
    )
    envelope = new_envelope(
        request,
        model,
        id_prefix="ollama-",
        prompts=[prompt.token_ids],
        num_choices=1,
        num_top=request.logprobs,
        new_grammars=new_grammars,
    )
    renderer = OllamaRenderer(envelope, ChatOptions(), new_line=generate_line)
    return new_job(request, model, envelope, [params], renderer, new_grammars)
