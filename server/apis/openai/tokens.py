"""/tokenize and /detokenize requests to the JSON of their responses. Runs in a worker thread."""

from __future__ import annotations

import msgspec

from schemas.tokenize import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
)
from server.generation.model import ServedModel
from server.http.errors import conflicting, invalid
from server.rendering.logprobs import encoded_list
from server.translation.prompts import counted_prompt


def tokenize(request: TokenizeRequest, model: ServedModel) -> bytes:
    """Encode a text, or render and encode a conversation. Raises InvalidRequest."""
    if (request.prompt is None) == (request.messages is None):
        raise conflicting("prompt", "Exactly one of prompt and messages must be given.")
    if request.prompt is not None:
        adds_special = request.add_special_tokens is not False
        tokens = model.tokenizer.encode(request.prompt, add_special_tokens=adds_special)
    else:
        tools = [msgspec.to_builtins(tool) for tool in request.tools or ()]
        tokens = counted_prompt(request, model, tools)
    return msgspec.json.encode(
        TokenizeResponse(
            count=len(tokens),
            max_model_len=model.info.max_model_len,
            tokens=encoded_list(tokens),
            token_strs=encoded_list(map(model.tokenizer.token_text, tokens))
            if request.return_token_strs
            else None,
        )
    )


def detokenize(request: DetokenizeRequest, model: ServedModel) -> bytes:
    """Decode token ids. Raises InvalidRequest for ids outside the vocabulary."""
    vocab_size = model.tokenizer.vocab_size
    if any(token_id >= vocab_size for token_id in request.tokens):
        raise invalid("tokens", f"tokens must be token ids below {vocab_size}.")
    text = model.tokenizer.decode(request.tokens, skip_special_tokens=False)
    return msgspec.json.encode(DetokenizeResponse(prompt=text))
