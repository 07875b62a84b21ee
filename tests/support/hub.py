"""A hub of models on the loopback device, for huggingface_hub and transformers."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import close_session

COMMIT = "0" * 40


class Hub:
    """Serves folders by repository name. A name without one is missing, or gated."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.folders: dict[str, Path] = {}
        self.gated: set[str] = set()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")
        if parts[0] == "api":
            repo, rest = "/".join(parts[2:4]), parts[4:]
        else:
            repo, rest = "/".join(parts[:2]), parts[2:]
        if repo in self.hub.gated:
            self._send(403, b"{}", {"X-Error-Code": "GatedRepo"}, with_body=with_body)
            return
        folder = self.hub.folders.get(repo)
        if folder is None:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"}, with_body=with_body)
        elif parts[0] == "api":
            if rest[:1] == ["tree"] and not folder.joinpath(*rest[2:]).is_dir():
                self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"}, with_body=with_body)
                return
            self._send(200, self._listing(folder, repo, rest), {}, with_body=with_body)
        else:
            file = folder.joinpath(*rest[2:])
            if not file.is_file():
                headers = {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}
                self._send(404, b"", headers, with_body=with_body)
                return
            data = file.read_bytes()
            headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": COMMIT}
            self._send(200, data, headers, with_body=with_body)

    def _listing(self, folder: Path, repo: str, rest: list[str]) -> bytes:
        names = [file.relative_to(folder) for file in folder.rglob("*") if file.is_file()]
        if rest[:1] == ["tree"]:
            return json.dumps(
                [
                    {
                        "type": "file",
                        "path": str(name),
                        "size": (folder / name).stat().st_size,
                        "oid": COMMIT,
                    }
                    for name in names
                ]
            ).encode()
        return json.dumps(
            {"id": repo, "sha": COMMIT, "siblings": [{"rfilename": str(name)} for name in names]}
        ).encode()

    def _send(self, status: int, body: bytes, headers: dict[str, str], *, with_body: bool) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)


@contextmanager
def running_hub(cache: Path) -> Iterator[Hub]:
    """A hub, and a client configuration that uses it with a cache of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    _Handler.hub = Hub(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            form = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, "", 1)
            patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", _Handler.hub.url + form)
            patch.setattr(constants, "ENDPOINT", _Handler.hub.url)
            patch.setattr(constants, "HF_HUB_OFFLINE", False)
            patch.setattr(constants, "HF_HUB_CACHE", str(cache))
            patch.setenv("NO_PROXY", "127.0.0.1")
            close_session()  # of another configuration
            yield _Handler.hub
    finally:
        close_session()
        server.shutdown()
        thread.join()
        server.server_close()
