"""The requests of benchmarks."""

import threading
import urllib.error
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from benchmarks.post import post, post_json


class Echo(BaseHTTPRequestHandler):
    """Answers with the body; 503 at /full."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(503 if self.path == "/full" else 200)
        self.end_headers()
        self.wfile.write(body if self.headers["content-type"] == "application/json" else b"")

    def log_message(self, *_arguments):
        pass


def test_a_body_is_sent_as_json_past_any_proxy(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with HTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        try:
            assert post(f"{url}/x", {"n": 1}) == b'{"n": 1}'
            assert post_json(f"{url}/x", {"n": [None, "é"]}) == {"n": [None, "é"]}
            with pytest.raises(urllib.error.HTTPError, match="503"):
                post(f"{url}/full", {})
        finally:
            server.shutdown()
            thread.join()
