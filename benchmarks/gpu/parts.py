"""The parts of a check on a GPU. Each yields its rows as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.gpu import http, peer, pytest_run, rates, throughput
from benchmarks.gpu.attention import attention
from benchmarks.gpu.host import host
from benchmarks.gpu.idle import idle
from benchmarks.gpu.memory import memory
from benchmarks.gpu.options import Options
from benchmarks.gpu.rows import Row
from benchmarks.gpu.sampling import sampling
from benchmarks.gpu.texts import texts

PARTS: dict[str, Callable[[Options], Iterator[Row]]] = {
    "tests": pytest_run.tests,
    "machine": rates.machine,
    "attention": attention,
    "texts": texts,
    "sampling": sampling,
    "memory": memory,
    "gpt2": throughput.gpt2,
    "small": throughput.small,
    "large": throughput.large,
    "shared": throughput.shared,
    "fp8": throughput.fp8,
    "weights": throughput.weights,
    "gaps": idle,
    "host": host,
    "peer": peer.peer,
    "http": http.over_http,
}
"""The most important parts come first."""
