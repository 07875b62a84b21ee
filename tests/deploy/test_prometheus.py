"""Prometheus scrapes a server, and answers every query of the dashboard for Grafana."""

from __future__ import annotations

import contextlib
import math
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from compat_tests.support.process import ServerProcess, loopback_only
from compat_tests.support.waiting import eventually
from tests.deploy.prometheus import Prometheus, Sample, find_prometheus
from tests.docs.test_dashboard import DASHBOARD, panels, queries

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(find_prometheus() is None, reason="needs prometheus"),
]

KEY = "sk-of-the-tests"
CHAT = "/v1/chat/completions"
HEADERS: dict[str, str | None] = {"authorization": f"Bearer {KEY}"}
PATIENCE = 90.0


def chat(**fields: object) -> dict[str, object]:
    messages = [{"role": "user", "content": "Tell me a story about a fox and a bear."}]
    return {"messages": messages, "max_tokens": 16, "ignore_eos": True, **fields}


def schema(number: int) -> dict[str, object]:
    """A grammar that no request before had."""
    value = {"type": "integer", "minimum": number, "maximum": number + 5}
    return {
        "type": "json_schema",
        "json_schema": {
            "name": "answer",
            "schema": {"type": "object", "properties": {"n": value}, "required": ["n"]},
        },
    }


def keep_asking(server: ServerProcess, is_over: threading.Event) -> None:
    """Send requests until it is over: answers, streams, new grammars, clients that leave."""
    number = 0
    while not is_over.is_set():
        number += 1
        for body in (chat(), chat(stream=True), chat(response_format=schema(number), n=2)):
            with server.connect() as connection:
                assert connection.request("POST", CHAT, body, HEADERS).body
        with server.connect() as connection:
            body = chat(stream=True, max_tokens=1500)
            next(connection.request("POST", CHAT, body, HEADERS).pieces())
        is_over.wait(0.05)


@dataclass
class Watched:
    """A busy server, and the Prometheus that scrapes it."""

    server: ServerProcess
    prometheus: Prometheus

    def ask(self, query: str) -> list[Sample]:
        """What a panel of the dashboard gets, for all servers."""
        expression = query.replace("$__rate_interval", "20s").replace("$instance", ".*")
        assert "$" not in expression
        return self.prometheus.query(expression)


@pytest.fixture(scope="module")
def watched(tmp_path_factory) -> Iterator[Watched]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(loopback_only())
        server = ServerProcess("--api-key", KEY)
        stack.callback(server.close)
        server.wait_ready()
        is_over = threading.Event()
        client = threading.Thread(target=keep_asking, args=(server, is_over))
        prometheus = stack.enter_context(
            Prometheus(f"127.0.0.1:{server.port}", KEY, tmp_path_factory.mktemp("prometheus"))
        )
        prometheus.wait_ready(PATIENCE)
        client.start()
        stack.callback(client.join)
        stack.callback(is_over.set)
        found = Watched(server, prometheus)
        many = "sum(count_over_time(roseinfer_ready[20s]))"
        eventually(lambda: sum(value for _, value in found.ask(many)) > 4, timeout=PATIENCE)
        yield found


def test_the_documented_configuration_scrapes_with_a_key(watched):
    (target,) = watched.prometheus.targets()
    assert (target["health"], target["lastError"]) == ("up", "")
    assert target["labels"]["job"] == "roseinfer"


@pytest.mark.parametrize("query", queries())
def test_every_query_of_the_dashboard_has_an_answer(watched, query):
    """Not only an answer without an error: a value that a panel can draw."""

    def drawn() -> list[Sample]:
        return [(labels, value) for labels, value in watched.ask(query) if math.isfinite(value)]

    found = eventually(drawn, timeout=PATIENCE, what=query)
    assert all(value >= 0 for _, value in found)


def test_legends_name_labels_that_the_answers_have(watched):
    for panel in panels(DASHBOARD):
        for target in panel.get("targets", ()):
            words = target["legendFormat"].split("{{")[1:]
            for name in (word.partition("}}")[0].strip() for word in words):
                answers = eventually(
                    lambda query=target["expr"]: watched.ask(query), what=panel["title"]
                )
                assert all(name in labels for labels, _ in answers), panel["title"]


def test_the_variable_of_the_dashboard_finds_the_server(watched):
    (variable,) = (v for v in DASHBOARD["templating"]["list"] if v["name"] == "instance")
    assert variable["query"]["query"] == "label_values(roseinfer_ready, instance)"
    found = watched.prometheus.label_values("instance", "roseinfer_ready")
    assert found == [f"127.0.0.1:{watched.server.port}"]


def test_a_series_that_nobody_has_is_noticed(watched):
    assert watched.ask('sum(rate(roseinfer_nothing_total{instance=~"$instance"}[1m]))') == []


def test_the_share_of_the_prefix_cache_is_right_at_any_load(watched):
    (query,) = (query for query in queries() if "prefix_cache_hits_total" in query and "/" in query)
    (_, share) = eventually(lambda: watched.ask(query), what="a share")[0]
    assert 0 < share <= 1


def test_promtool_accepts_the_page(watched):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool")
    page = watched.server.get("/metrics", HEADERS).body
    command = [promtool, "check", "metrics"]
    checked = subprocess.run(command, input=page, capture_output=True, check=False)
    said = checked.stdout.decode() + checked.stderr.decode()
    assert checked.returncode in (0, 3), said  # 3: only remarks about names
    remarks = [line for line in said.splitlines() if not line.startswith("vllm:")]
    assert remarks == []
