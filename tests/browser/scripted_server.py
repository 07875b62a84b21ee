"""The server with an engine that says what a test needs: ``-m tests.browser.scripted_server``.

A request chooses its answer with its ``seed``. Everything between the socket and the engine is the
real thing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable

from core.assembly.build import LoadedEngine
from core.contract.messages import EngineRequest, StepOutput
from tests.support.engines import AnsweringEngine, loaded, words

HOSTILE, ENDLESS, FAILING, RICH = 1, 2, 3, 4

PWNED = "window.pwned=1"
HOSTILE_TEXT = (
    f'<img src=x onerror="{PWNED}"><script>{PWNED}</script><svg onload={PWNED}>\n\n'
    f"[click](javascript:{PWNED}) ![x](http://evil.example/x.png) <iframe srcdoc='<script>"
    f"{PWNED}</script>'></iframe>\n\n"
    f'```html"><script>{PWNED}</script>\n</code></pre><script>{PWNED}</script>\n```\n\n'
    f"| <b onclick={PWNED}>a</b> | b |\n|---|---|\n| <a href='javascript:{PWNED}'>x</a> | y |\n\n"
    f"# <style>*{{display:none}}</style>\n\n- `<script>{PWNED}</script>`\n\nend of it"
)
RICH_TEXT = (
    "# Title\n\nSome **bold**, *slanted* and `code` text with a [link](https://example.org/a).\n\n"
    "1. one\n2. two\n   - inside\n\n> said\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
    "```python\nprint('hello')\n```\n"
)
STEP_SECONDS = 0.02
"""Of a step while an endless answer runs."""


def pieces_of(text: str, size: int = 7) -> list[str]:
    """Cut a text anywhere, as tokens do."""
    return [text[at : at + size] for at in range(0, len(text), size)]


ANSWERS: dict[int | None, Callable[[EngineRequest], Iterable[StepOutput]]] = {
    HOSTILE: words(*pieces_of(HOSTILE_TEXT)),
    ENDLESS: words(*["word "] * 8000),  # longer than any wait of a test
    RICH: words(*pieces_of(RICH_TEXT)),
}


def answer(request: EngineRequest) -> Iterable[StepOutput]:
    """The outputs of the steps of a request."""
    if request.params.seed == FAILING:
        first, *_ = words("Begin", "never")(request)
        return [first, StepOutput(request_id=request.request_id, error="The engine has failed.")]
    return ANSWERS.get(request.params.seed, words("Hi", " there!"))(request)


class ScriptedEngine(AnsweringEngine):
    """Takes time for the steps of long answers only."""

    def step(self) -> list[StepOutput]:
        if any(len(pending) > 500 for pending in self._live.values()):
            threading.Event().wait(STEP_SECONDS)
        return super().step()


def load() -> LoadedEngine:
    return loaded(ScriptedEngine(answer), max_model_len=8192)


if __name__ == "__main__":
    from server.cli.main import run
    from server.cli.program import exit_process
    from server.settings.settings import parse_settings

    exit_process(run(parse_settings(["serve", *sys.argv[1:]]), load=load))
