"""The size of a request before it is translated: cheap enough for the event loop."""

from __future__ import annotations

from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from schemas.generate import GenerateRequest


def num_generations(request: ChatCompletionRequest | CompletionRequest | GenerateRequest) -> int:
    """Choices of all prompts."""
    match request:
        case ChatCompletionRequest():
            return request.n or 1
        case CompletionRequest():
            return _num_prompts(request) * max(request.best_of or 1, request.n or 1)
        case GenerateRequest():
            return 1


def _num_prompts(request: CompletionRequest) -> int:
    """One for a text or a list of token ids, else one for each element."""
    prompt = request.prompt
    if not isinstance(prompt, list) or not prompt or isinstance(prompt[0], int):
        return 1
    return len(prompt)
