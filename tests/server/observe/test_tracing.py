"""A server with a collector: what it is sent over the wire, and the flag."""

from __future__ import annotations

import threading
from argparse import ArgumentTypeError
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anyio
import pytest

from server.app.app import create_app
from server.app.edge import with_edge
from server.settings import serve as flags
from server.settings.settings import Settings, parse_settings
from tests.support.asgi import ask
from tests.support.engines import AnsweringEngine, loaded, words

pytestmark = pytest.mark.anyio

TRACE = "0af7651916cd43dd8448eb211c80319c"
HEADERS = {
    "content-type": "application/json",
    "traceparent": f"00-{TRACE}-b7ad6b7169203331-01",
}
CHAT = {"messages": [{"role": "user", "content": "a secret"}]}


class Collector(BaseHTTPRequestHandler):
    """Keeps the bodies that it is sent."""

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None: ...


@pytest.fixture
def collector():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.bodies = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a_collector_gets_a_span_of_each_request_before_the_server_ends(collector):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs roseinfer[otel]")
    ready = anyio.Event()
    settings = Settings(otlp_traces_endpoint=f"http://127.0.0.1:{collector.server_port}/v1/traces")
    app = create_app(
        settings,
        load=lambda: loaded(AnsweringEngine(words("Hi", " there!"))),
        on_event=lambda _event: ready.set(),
    )
    async with app.lifespan():
        await ready.wait()
        exchange = await ask(with_edge(app), "POST", "/v1/chat/completions", CHAT, HEADERS)
        assert exchange.status == 200
    sent = b"".join(collector.bodies)
    assert bytes.fromhex(TRACE) in sent
    assert b"gen_ai.usage.output_tokens" in sent
    assert exchange.headers["x-request-id"].encode() in sent
    assert b"secret" not in sent


@pytest.mark.parametrize(
    ("header", "kept"),
    [
        (HEADERS["traceparent"], True),
        ("00-1-2-01", False),
        (HEADERS["traceparent"].upper(), False),
        (HEADERS["traceparent"] + "\n", False),
    ],
)
async def test_the_record_has_the_clients_span(start_app, header, kept):
    app = await start_app()
    await ask(app, "POST", "/v1/chat/completions", CHAT, HEADERS | {"traceparent": header})
    [record] = (await ask(app, "GET", "/requests")).json["data"]
    assert record["traceparent"] == (header if kept else None)


async def test_without_the_flag_no_collector_is_looked_for(start_app, monkeypatch):
    app = await start_app()
    listeners = app.litestar.state.serving.records._listeners
    assert listeners == [app.litestar.state.serving.records.totals]


def test_the_flag_wants_a_url_and_the_packages(capsys, monkeypatch):
    flag = "--otlp-traces-endpoint"
    monkeypatch.setattr(flags, "find_spec", lambda _package: True)
    settings = parse_settings(["serve", flag, "http://host:4318/v1/traces"], {})
    assert settings.otlp_traces_endpoint == "http://host:4318/v1/traces"
    with pytest.raises(SystemExit):
        parse_settings(["serve", flag, "host:4317"], {})
    assert "no URL" in capsys.readouterr().err
    monkeypatch.setattr(flags, "find_spec", lambda package: package == "opentelemetry")
    with pytest.raises(SystemExit) as exited:
        parse_settings(["serve", flag, "http://host:4318/v1/traces"], {})
    assert exited.value.code == 2
    assert "pip install 'roseinfer[otel]'" in capsys.readouterr().err


def test_a_package_whose_parent_is_missing_is_not_installed(monkeypatch):
    url = "http://host:4318/v1/traces"
    monkeypatch.setattr(flags, "_PACKAGES", ("json.decoder",))
    assert flags.endpoint(url) == url
    monkeypatch.setattr(flags, "_PACKAGES", ("json.decoder", "no_such_parent.child"))
    with pytest.raises(ArgumentTypeError):
        flags.endpoint(url)
