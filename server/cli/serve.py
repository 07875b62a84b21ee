"""The server process: its terminal output until it is ready, one event loop, graceful shutdown."""

from __future__ import annotations

import gc
import logging
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from core.assembly.load import load as load_model
from core.contract.info import EngineInfo, PoolingInfo
from core.engine.thread import Died, Event, Ready
from core.module.modelling_import import import_modelling
from core.observe.load_progress import LoadProgress, LoadStage, reporting
from server.app.app import create_app
from server.app.edge import with_edge
from server.generation.model import Loaded, ServedModel
from server.net.endpoint import Endpoint, ListenError, open_endpoint
from server.process import heap
from server.process.draining import DrainingServer, server_config
from server.settings.settings import Settings

if TYPE_CHECKING:
    from rich.console import RenderableType

REDRAWS_PER_SECOND = 8
BAR_WIDTH = 36


def run(settings: Settings, load: Callable[[], Loaded] | None = None) -> int:
    """Serve until a signal or a failure; return the exit code. Main thread, after set_up_server."""
    try:
        endpoint = open_endpoint(settings)
    except ListenError as error:
        print(f"roseinfer: {error}", file=sys.stderr)
        return 2
    exit_code = 0

    def on_event(event: Event) -> None:
        nonlocal exit_code
        match event:
            case Ready():
                heap.freeze()
                server.announce_ready()
                start_up.ready(endpoint, app.state.serving.model)
            case Died(message, is_load_error):
                start_up.end()
                print(f"roseinfer: {' '.join(message.split())}", file=sys.stderr, flush=True)
                exit_code = 2 if is_load_error else 1
                server.end_failed()

    start_up = StartUp(settings, load)
    app = create_app(settings, load=start_up.load, on_event=on_event)
    config = server_config(with_edge(app), settings)
    server = DrainingServer(config, endpoint, settings.drain_timeout, app.state)
    start_up.begin(endpoint)
    try:
        server.run(sockets=[])
    finally:
        start_up.end()
        endpoint.close()
    return exit_code


class StartUp:
    """The start of one server, with a bar on a terminal. Main thread only, but for ``load``."""

    def __init__(self, settings: Settings, load: Callable[[], Loaded] | None) -> None:
        """``load`` replaces the loader of ``settings.model``."""
        self._settings = settings
        self._load = load
        self._progress = LoadProgress()
        self._live: Any = None
        self._start = time.monotonic()

    def load(self) -> Loaded:
        """Load the model, and report how far that is. Any thread."""
        with reporting(self._progress):
            if self._load is not None:
                return self._load()
            import_modelling()
            gc.freeze()  # what is imported is left out of the collection of ``heap.freeze`` too
            return load_model(self._settings.model, self._settings.engine)

    def begin(self, endpoint: Endpoint) -> None:
        print(f"Listening on {endpoint.url}, loading {self._settings.model_name} ...", flush=True)
        if not sys.stderr.isatty():
            return
        from rich.console import Console  # noqa: PLC0415 - only for a terminal
        from rich.live import Live  # noqa: PLC0415

        self._live = Live(
            console=Console(stderr=True, highlight=False),
            get_renderable=self._bar,
            refresh_per_second=REDRAWS_PER_SECOND,
            transient=True,
            redirect_stdout=False,
        )
        self._live.start()
        _log_to(sys.stderr)  # which rich has replaced

    def ready(self, endpoint: Endpoint, model: ServedModel) -> None:
        self.end()
        ends = ", ".join(map(model.tokenizer.token_text, model.info.eos_token_ids))
        announce(self._settings, endpoint, model.info, ends, takes_messages=model.takes_messages)

    def end(self) -> None:
        """Remove the bar. Idempotent."""
        if self._live is not None:
            self._live.stop()
            self._live = None
            _log_to(sys.stderr)

    def _bar(self) -> RenderableType:
        from rich.progress_bar import ProgressBar  # noqa: PLC0415 - only for a terminal
        from rich.table import Table  # noqa: PLC0415

        stage = self._progress.now
        row = Table.grid(padding=(0, 2))
        bar = ProgressBar(
            total=stage.total or None,
            completed=min(stage.done, stage.total),
            width=BAR_WIDTH,
            pulse=not stage.total,
        )
        seconds = f"{time.monotonic() - self._start:.0f} s"
        row.add_row(f"{stage.name:<18}", bar, amount(stage), seconds)
        return row


def amount(stage: LoadStage) -> str:
    """The done part of a stage as text; empty if it is not known."""
    if stage.is_bytes:
        done = f"{stage.done / 1e6:,.0f}"
        return f"{done} of {stage.total / 1e6:,.0f} MB" if stage.total else f"{done} MB"
    return f"{min(1.0, stage.done / stage.total):.0%}" if stage.total else ""


def _log_to(stream: Any) -> None:
    """Make the log write to what stderr is now."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(stream)


def announce(
    settings: Settings, endpoint: Endpoint, info: EngineInfo, ends: str, *, takes_messages: bool
) -> None:
    """Print what is served, where, and an example. ``ends`` are the tokens that end an answer."""
    if sys.stdout.isatty():
        _print_table(facts_of(settings, endpoint.url, info, ends))
    else:
        room = f", room for {info.num_kv_tokens} in the cache"
        if info.pooling is not None:
            room = f", {pooling}" if (pooling := _pooling(info.pooling)) else ""
        end = f", ends at {ends}" if ends else ""
        print(
            f"Serving {settings.model_name}: {info.dtype} on {info.device}, {info.path.name}, "
            f"context {info.max_model_len} tokens{room}{end}."
        )
    path, body = _example(info, takes_messages)
    print(
        f"Try:  curl {endpoint.curl}{path} -H 'Content-Type: application/json' -d '{body}'",
        flush=True,
    )


def facts_of(
    settings: Settings, url: str, info: EngineInfo, ends: str = ""
) -> list[tuple[str, str]]:
    facts = {
        "model": ", ".join(settings.served_model_names),
        "dtype": f"{info.dtype} on {info.device}",
        "context": f"{info.max_model_len:,} tokens",
        "cache": f"{info.num_kv_tokens:,} tokens" if info.pooling is None else "",
        "vectors": "" if info.pooling is None else _pooling(info.pooling),
        "ends at": ends,
        "threads": f"{info.num_threads}",
        "path": f"{info.path}",
        "kernels": info.computation,
        "URL": url if settings.uds else f"{url}/v1",
        "keys": _keys(settings),
        "page": f"{url}/" if settings.ui and settings.uds is None else "",
    }
    return [(name, value) for name, value in facts.items() if value]


def _pooling(pooling: PoolingInfo) -> str:
    """The pooling of a model of vectors; empty for scores."""
    if not pooling.poolings:
        return ""
    ending = ", normalised" if pooling.is_normalized else ""
    return f"pooling {' and '.join(pooling.poolings)}{ending}"


def _keys(settings: Settings) -> str:
    parts = [f"{len(settings.api_keys)} given"] * bool(settings.api_keys)
    parts += ["those of a file"] * (settings.api_key_file is not None)
    return " and ".join(parts) or "none: whoever reaches the URL may use it"


def _print_table(facts: list[tuple[str, str]]) -> None:
    from rich.console import Console  # noqa: PLC0415 - only for a terminal
    from rich.table import Table  # noqa: PLC0415

    table = Table.grid(padding=(0, 3))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, value)
    console = Console(highlight=False, markup=False)
    console.print()
    console.print(table)
    console.print()


def _example(info: EngineInfo, takes_messages: bool) -> tuple[str, str]:
    """A path and a body that the model answers."""
    if info.pooling is None and not takes_messages:
        return "/v1/completions", '{"prompt": "Once upon a time"}'
    if info.pooling is None:
        body = '{"messages": [{"role": "user", "content": "Hello!"}]}'
        return "/v1/chat/completions", body
    if info.pooling.task == "embed":
        return "/v1/embeddings", '{"input": "Hello!"}'
    return "/v1/rerank", '{"query": "Who?", "documents": ["I.", "You."]}'
