"""The size of a request before it is translated: cheap enough for the event loop."""

from __future__ import annotations

from schemas.completions import CompletionRequest


def num_generations(request: CompletionRequest) -> int:
    """Choices of all prompts."""
    return _num_prompts(request) * max(request.best_of or 1, request.n or 1)


def _num_prompts(request: CompletionRequest) -> int:
    """One for a text or a list of token ids, else one for each element."""
    prompt = request.prompt
    if not isinstance(prompt, list) or not prompt or isinstance(prompt[0], int):
        return 1
    return len(prompt)
