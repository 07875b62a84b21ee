"""Prometheus itself, in a process of its own, scraping one server as docs/metrics.md says."""

from __future__ import annotations

import http.client
import json
import shutil
import urllib.parse
from pathlib import Path
from typing import Any

import yaml

from benchmarks.process import ServerProcess as Process
from tests.docs.markdown import ROOT, page

DOCUMENTED = ROOT / "docs" / "metrics.md"
OFTEN = {"scrape_interval": "500ms", "scrape_timeout": "500ms"}
"""So that rates are known soon."""

Sample = tuple[dict[str, str], float]
"""Labels and a value."""


def find_prometheus() -> str | None:
    """The path of the program."""
    return shutil.which("prometheus")


def documented_config(target: str, key_file: Path) -> dict[str, Any]:
    """The configuration in the documentation, with another server and key."""
    (block,) = (block for block in page(DOCUMENTED).blocks if block.language == "yaml")
    config: dict[str, Any] = yaml.safe_load(block.text)
    (job,) = config["scrape_configs"]
    job["authorization"]["credentials_file"] = str(key_file)
    job["static_configs"][0]["targets"] = [target]
    return config


class Prometheus(Process):
    """A context manager. Its data is in ``folder``."""

    READY_PATH = "/-/ready"

    def __init__(self, target: str, key: str, folder: Path) -> None:
        key_file, config_file = folder / "key", folder / "prometheus.yaml"
        key_file.write_text(key)
        config = documented_config(target, key_file)
        config_file.write_text(yaml.safe_dump(config | {"global": OFTEN}))

        def command(port: int) -> list[str]:
            return [
                find_prometheus() or "prometheus",
                f"--config.file={config_file}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ]

        super().__init__(command, folder / "prometheus.log")

    def query(self, expression: str) -> list[Sample]:
        """The value of every series of an expression now. Fails if it cannot be evaluated."""
        data = self._get(f"query?query={urllib.parse.quote(expression)}")
        assert data["resultType"] == "vector", expression
        return [(found["metric"], float(found["value"][1])) for found in data["result"]]

    def label_values(self, label: str, series: str) -> list[str]:
        """What Grafana's ``label_values(series, label)`` gives."""
        found: list[str] = self._get(f"label/{label}/values?match[]={urllib.parse.quote(series)}")
        return found

    def targets(self) -> list[dict[str, Any]]:
        """What it scrapes, with the last error of each."""
        found: list[dict[str, Any]] = self._get("targets")["activeTargets"]
        return found

    def _get(self, path: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", f"/api/v1/{path}")
            answer = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        assert answer["status"] == "success", answer
        return answer["data"]
