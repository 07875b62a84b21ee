"""GET /metrics: what happens in the server shows there, and totals never go down."""

from __future__ import annotations

import ast
import threading

import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from core.contract.info import ModelPath
from server.apis.operation import routes as metrics
from server.apis.operation.metrics import read_all
from tests.support.asgi import Exchange, ask
from tests.support.engines import loaded, settle, until
from tests.support.records import ended
from tests.support.scripted import Rig
from tests.support.source_tree import FILES, files_in, name_of, tree_of

pytestmark = pytest.mark.anyio


class Fault(Exception):
    """What a bug in the engine's bookkeeping raises."""


COMPLETIONS = "/v1/completions"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def scrape(app, **headers) -> Samples:
    exchange = await ask(app, "GET", "/metrics", headers=headers)
    assert exchange.status == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(exchange.body.decode())
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def totals(samples: Samples) -> Samples:
    """Counters, and the buckets, counts and sums of histograms."""
    suffixes = ("_total", "_bucket", "_count", "_sum")
    return {key: value for key, value in samples.items() if key[0].endswith(suffixes)}


async def test_the_media_type_is_that_of_the_text_format(start_app):
    app = await start_app()
    exchange = await ask(app, "GET", "/metrics", headers={"accept": "application/openmetrics-text"})
    assert exchange.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_it_needs_a_key_like_other_routes(start_app):
    app = await start_app(api_keys=("sk",))
    assert (await ask(app, "GET", "/metrics")).status == 401
    assert await scrape(app, authorization="Bearer sk")


async def test_it_answers_while_the_model_is_loaded(start_app, engine):
    app = await start_app(engine)
    app.litestar.state.serving.loaded_model = None
    samples = await scrape(app)
    assert value(samples, "roseinfer_grammar_compile_seconds_count") == 0
    assert value(samples, "roseinfer_model_info", model_name="roseinfer-tiny", dtype="", device="")
    assert value(samples, "roseinfer_model_path_info", path="", slower_because="")


async def test_the_path_of_the_model_is_a_label(start_app, engine):
    path = ModelPath(name="layer by layer", expected="all layers in one call", slower_because="so")
    app = await start_app(engine)
    app.litestar.state.serving.loaded_model = loaded(engine, path=path)
    samples = await scrape(app)
    labels = {"path": "layer by layer", "slower_because": "so"}
    assert value(samples, "roseinfer_model_path_info", **labels) == 1


async def test_the_state_of_the_engine_shows(start_app):
    rig = Rig(num_blocks=64)
    app = await start_app(rig.engine)
    before = await scrape(app)
    exchange = await ask(app, "POST", COMPLETIONS, {"prompt": [1] * 9, "max_tokens": 5})
    assert exchange.status == 200
    await until(lambda: app.bridge.histograms.step.read().num_values == 5)
    after = await scrape(app)

    def gained(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    assert gained("roseinfer_prompt_tokens_total") == 9
    assert gained("roseinfer_generated_tokens_total") == 5
    assert gained("vllm:generation_tokens_total", model_name="roseinfer-tiny", engine="0") == 5
    assert gained("roseinfer_steps_total") == 5
    assert gained("roseinfer_inter_token_seconds_count") == 4
    assert gained("roseinfer_batch_sequences_sum") == 5
    assert gained("roseinfer_batch_tokens_sum") == 9 + 4
    assert gained("roseinfer_step_stage_seconds_count", stage="commit") == 5
    assert value(after, "roseinfer_ready") == 1
    assert value(after, "roseinfer_kv_cache_blocks") == 64
    assert value(after, "roseinfer_kv_cache_usage_ratio") == 0


async def test_requests_show_by_how_they_ended(start_app):
    rig = Rig()
    app = await start_app(rig.engine)
    body = {"prompt": [1] * 9, "max_tokens": 5, "n": 2}
    assert (await ask(app, "POST", COMPLETIONS, body)).status == 200
    assert (await ask(app, "POST", COMPLETIONS, {"prompt": 5})).status == 400
    samples = await scrape(app)

    def ended(status: str, ended_by: str) -> float:
        labels = {"route": COMPLETIONS, "status": status, "ended_by": ended_by}
        return value(samples, "roseinfer_requests_total", **labels)

    assert (ended("200", "length"), ended("400", "error")) == (1, 1)
    assert value(samples, "roseinfer_finished_choices_total", finished_reason="length") == 2
    twin = {"model_name": "roseinfer-tiny", "engine": "0"}
    for name in ("time_to_first_token_seconds", "request_queue_time_seconds"):
        assert value(samples, f"vllm:{name}_count", **twin) == 1
    assert value(samples, "vllm:request_generation_tokens_sum", **twin) == 10
    assert value(samples, "roseinfer_request_seconds_count") == 1
    parts = ("queue", "prefill", "decode")
    in_engine = sum(value(samples, f"roseinfer_request_{part}_seconds_sum") for part in parts)
    assert 0 < in_engine <= value(samples, "roseinfer_request_seconds_sum")


async def test_running_requests_and_used_blocks_show(start_app):
    rig = Rig(num_blocks=40, block_size=4, max_num_seqs=2)
    runs, may_run = threading.Event(), threading.Event()
    original = rig.runner.launch

    def launch(scheduler_output):
        step = original(scheduler_output)
        if len(rig.runner.batches) == 2:
            runs.set()
            may_run.wait(10)
        return step

    rig.runner.launch = launch
    app = await start_app(rig.engine)
    exchanges = [
        Exchange("POST", COMPLETIONS, chunks=[b'{"prompt":[1,2,3],"max_tokens":3}'])
        for _ in range(3)
    ]
    async with anyio.create_task_group() as tasks:
        for exchange in exchanges:
            tasks.start_soon(exchange.run, app)
        await until(runs.is_set)
        samples = await scrape(app)
        may_run.set()
    assert (
        value(samples, "roseinfer_requests_running") + value(samples, "roseinfer_requests_waiting")
        >= 1
    )
    assert value(samples, "roseinfer_kv_cache_usage_ratio") > 0
    assert value(samples, "roseinfer_tickets") == 3


async def test_refusals_show_by_what_there_was_too_much_of(start_app, engine):
    app = await start_app(engine, max_queued_prompt_tokens=4, rate_limit=None)
    held = Exchange("POST", COMPLETIONS, chunks=[b'{"prompt":[1,2,3],"max_tokens":3}'])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(held.run, app)
        await engine.admit(1)
        refused = await ask(app, "POST", COMPLETIONS, {"prompt": [1, 2, 3], "max_tokens": 3})
        assert refused.status == 429
        samples = await scrape(app)
        held.disconnect()
        await settle()
    assert value(samples, "roseinfer_refusals_total", reason="prompt_tokens") == 1
    assert value(samples, "roseinfer_refusals_total", reason="choices") == 0


async def test_dropped_requests_show(start_app, engine):
    rig = Rig()
    app = await start_app(rig.engine)
    exchange = Exchange("POST", COMPLETIONS, chunks=[b'{"prompt":"x","max_tokens":400}'])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        await until(lambda: app.bridge.stats.num_output_tokens > 2)
        exchange.disconnect()
    await until(lambda: app.bridge.stats.num_aborts == 1)
    assert value(await scrape(app), "roseinfer_aborts_total") == 1


async def test_totals_never_go_down_when_the_engine_recovers(start_app):
    """Failed steps, faults in the bookkeeping, a request with NaN, clients that leave."""
    rig = Rig(num_blocks=24, max_num_seqs=3)
    app = await start_app(rig.engine)
    seen = totals(await scrape(app))
    faults = iter([None, RuntimeError("a step"), Fault(), None, Fault(), RuntimeError("a step")])
    original = rig.scheduler.schedule

    def schedule():
        fault = next(faults, None)
        if isinstance(fault, Fault):
            raise fault
        if fault is not None:
            rig.runner.failures.append(fault)
        return original()

    rig.scheduler.schedule = schedule
    for number in range(6):
        body = {"prompt": [number] * 9, "max_tokens": 6, "n": 2}
        assert (await ask(app, "POST", COMPLETIONS, body)).status in {200, 500, 503}
        now = totals(await scrape(app))
        assert now.keys() >= seen.keys()
        assert {key for key in seen if now[key] < seen[key]} == set()
        seen = now
    assert value(seen, "roseinfer_failed_steps_total") >= 3
    assert value(seen, "roseinfer_generated_tokens_total") >= 6 * 6


async def test_the_page_is_made_beside_the_event_loop(start_app, monkeypatch):
    app = await start_app()
    threads = []
    render = metrics._render

    def spy(*arguments):
        threads.append(threading.current_thread())
        return render(*arguments)

    monkeypatch.setattr(metrics, "_render", spy)
    await scrape(app)
    assert threads
    assert threading.main_thread() not in threads


async def test_what_was_read_for_a_page_does_not_change_while_it_is_made(start_app):
    serving = (await start_app()).litestar.state.serving
    values = read_all(serving)
    before = {metric.name: dict(found) for metric, found in values}
    serving.records.totals(ended())
    assert {metric.name: dict(found) for metric, found in values} == before
    assert {metric.name: dict(found) for metric, found in read_all(serving)} != before


def test_only_a_scrape_imports_prometheus_client():
    def imported(node) -> list[str]:
        match node:
            case ast.Import():
                return [alias.name for alias in node.names]
            case ast.ImportFrom():
                return [str(node.module)]
        return []

    importing = {
        name_of(file)
        for file in set(FILES) - set(files_in("server.router"))  # a program of its own
        for node in tree_of(file).body
        for name in imported(node)
        if name.startswith("prometheus_client") or name == "server.apis.operation.exposition"
    }
    assert importing == {"server/apis/operation/exposition.py"}
