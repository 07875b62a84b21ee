"""POST /tokenize and /detokenize, in vLLM's shapes."""

from __future__ import annotations

import msgspec
from litestar import Controller, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from core.contract.errors import InvalidRequest
from schemas.tokenize import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
)
from server.openapi import gives
from server.serving import Serving
from server.translate.prompts import chat_prompt


class TokenController(Controller):
    """Text and token ids."""

    path = "/"
    tags = ("Tokens",)

    @post(
        ["/tokenize", "/v1/tokenize"],
        status_code=200,
        responses=gives(TokenizeResponse, 400, 404, 413, 415, 500, 503),
    )
    async def tokenize(
        self, data: JSONBody[TokenizeRequest], serving: NamedDependency[Serving]
    ) -> TokenizeResponse:
        """Token ids of a text, or of a conversation as the chat template renders it."""
        serving.bridge.check_accepting()
        serving.check_model(data.model)
        tokens = await serving.in_worker(_tokenize, data, serving)
        return TokenizeResponse(
            count=len(tokens),
            max_model_len=serving.info.max_model_len,
            tokens=tokens,
            token_strs=[serving.tokenizer.token_text(token_id) for token_id in tokens]
            if data.return_token_strs
            else None,
        )

    @post(
        ["/detokenize", "/v1/detokenize"],
        status_code=200,
        responses=gives(DetokenizeResponse, 400, 404, 413, 415, 500, 503),
    )
    async def detokenize(
        self, data: JSONBody[DetokenizeRequest], serving: NamedDependency[Serving]
    ) -> DetokenizeResponse:
        """Text of token ids, special tokens included."""
        serving.bridge.check_accepting()
        serving.check_model(data.model)
        vocab_size = serving.tokenizer.vocab_size
        if any(token_id >= vocab_size for token_id in data.tokens):
            raise InvalidRequest(
                f"tokens must be token ids below {vocab_size}.",
                param="tokens",
                code="invalid_value",
            )
        text = await serving.in_worker(
            serving.tokenizer.decode, data.tokens, skip_special_tokens=False
        )
        return DetokenizeResponse(prompt=text)


def _tokenize(data: TokenizeRequest, serving: Serving) -> list[int]:
    if (data.prompt is None) == (data.messages is None):
        raise InvalidRequest(
            "Exactly one of prompt and messages must be given.",
            param="prompt",
            code="invalid_parameter_combination",
        )
    if data.prompt is not None:
        return serving.tokenizer.encode(
            data.prompt, add_special_tokens=data.add_special_tokens is not False
        )
    return chat_prompt(
        data,
        serving.tokenizer,
        tools=[msgspec.to_builtins(tool) for tool in data.tools or ()],
        allow_template=serving.settings.trust_request_chat_template,
    )
