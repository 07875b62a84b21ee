"""Write docs/metrics.md from the definitions of the metrics: ``python -m docs.make_metrics``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from server.apis.operation.metrics import METRICS

PAGE = Path(__file__).with_name("metrics.md")

_TEXT = """\
# Metrics

`GET /metrics` is read by Prometheus, in its text format. Where the server has API keys, it needs
one:

```yaml
scrape_configs:
  - job_name: roseinfer
    authorization:
      credentials_file: /etc/prometheus/roseinfer.key
    static_configs:
      - targets: ["localhost:8000"]
```

[deploy/grafana/roseinfer.json](../deploy/grafana/roseinfer.json) is a dashboard of these metrics.
Import it in Grafana: *Dashboards*, *New*, *Import*. A test scrapes a server as above and asks
Prometheus each query of it ([test_prometheus.py](../tests/deploy/test_prometheus.py)).

`python -m docs.make_metrics` writes this page from the definitions of which the endpoint is made.
Counters and histograms count from the start of the process and never go down, also when the engine
recovers from a failure.

| metric | kind | labels | meaning |
|---|---|---|---|
{rows}
Besides these there are `process_cpu_seconds_total`, `process_resident_memory_bytes`,
`process_open_fds` and the others that every Prometheus client has.

## What is counted where

- The engine counts once per step and adds up its tokens; a request is counted once, at its end.
  The page with its labels is made when it is read, in a worker thread.
- The time between tokens is counted per step: sequences that are in every step get their tokens
  together, so the time between two steps counts once for each of them. A sequence that missed a
  step (preempted, mask late, repeated after a failure) is counted by itself. Sums, counts and
  buckets are exact ([tests](../tests/core/observe/test_token_counter.py)).
- Times of stages are those of the core thread on the host. On CUDA the device computes a step while
  the host is in later stages.
- The lag of the event loop is measured while at least one request is open. Values above 50 ms are
  stalls.

## vLLM's names

Gateways route by metrics of vLLM. The server has the same numbers under these names too, with the
labels `model_name` and `engine="0"`:

| vLLM's name | the same as |
|---|---|
{twins}"""


def metrics_page() -> str:
    """Return the page's text."""
    rows = _rows(
        (f"`{m.name}`", m.kind, ", ".join(f"`{label}`" for label in m.labels), m.help)
        for m in METRICS
    )
    twins = _rows((f"`{m.twin}`", f"`{m.name}`") for m in METRICS if m.twin)
    return _TEXT.format(rows=rows, twins=twins)


def _rows(rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    PAGE.write_text(metrics_page(), encoding="utf-8")
