"""docs/metrics.md is generated from the metrics."""

from docs.make_metrics import PAGE, metrics_page
from server.apis.operation.metrics import METRICS


def test_the_page_is_what_its_script_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == metrics_page(), "run python -m docs.make_metrics"


def test_the_page_has_a_row_for_every_name() -> None:
    page = metrics_page()
    for metric in METRICS:
        for name in filter(None, (metric.name, metric.twin)):
            assert f"| `{name}` |" in page
