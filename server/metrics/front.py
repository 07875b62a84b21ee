"""Metrics of the front end: admission and the event loop."""

from __future__ import annotations

from server.bridge import State
from server.metrics.definitions import Metric, Values, by_label
from server.serving import Serving


def _refusals(serving: Serving) -> Values:
    return by_label(serving.admission.refusals)


def _info(serving: Serving) -> Values:
    model = serving.loaded_model
    facts = ("", "") if model is None else (model.info.dtype, model.info.device)
    return {(serving.settings.model_name, *facts): 1}


def _path(serving: Serving) -> Values:
    model = serving.loaded_model
    facts = ("", "") if model is None else (model.info.path.name, model.info.path.slower_because)
    return {facts: 1}


FRONT_METRICS = (
    Metric(
        name="roseinfer_model_info",
        kind="gauge",
        help="Always 1; the labels say what is served. Empty while the model is loaded.",
        read=_info,
        labels=("model_name", "dtype", "device"),
    ),
    Metric(
        name="roseinfer_model_path_info",
        kind="gauge",
        help="Always 1; the labels say what computes the model's steps, and why it is not the "
        "faster path that its family has. Empty while the model is loaded.",
        read=_path,
        labels=("path", "slower_because"),
    ),
    Metric(
        name="roseinfer_ready",
        kind="gauge",
        help="1 if the server accepts requests; 0 while it loads or drains, or if it has failed.",
        read=lambda serving: serving.bridge.state is State.READY,
    ),
    Metric(
        name="roseinfer_tickets",
        kind="gauge",
        help="Requests between their headers and the last byte of their answer.",
        read=lambda serving: serving.admission.num_tickets,
    ),
    Metric(
        name="roseinfer_refusals_total",
        kind="counter",
        help="Requests that were answered 429, by what there was too much of.",
        read=_refusals,
        labels=("reason",),
    ),
    Metric(
        name="roseinfer_loop_lag_seconds",
        kind="histogram",
        help="How late a timer of the event loop was, 50 times a second while requests are open.",
        read=lambda serving: serving.stalls.lateness.read(),
    ),
    Metric(
        name="roseinfer_loop_stalls_total",
        kind="counter",
        help="Times of more than 50 ms in which the event loop served no connection.",
        read=lambda serving: serving.stalls.stats.num_stalls,
    ),
    Metric(
        name="roseinfer_loop_busy_stalls_total",
        kind="counter",
        help="Those of them in which the event loop itself computed.",
        read=lambda serving: serving.stalls.stats.num_busy_stalls,
    ),
)
