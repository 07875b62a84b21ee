"""The cost of HTTP: CPU time per streamed token, and throughput next to the bare engine.

    python -m benchmarks.front_end cpu [--endpoint chat] [--streams 64] [--step-ms 10]
    python -m benchmarks.front_end refusals [--endpoint chat] [--streams 8] [--tokens 100]
    python -m benchmarks.front_end throughput [--model DIR] [--streams 64]

``cpu`` starts the server as ``roseinfer serve`` does, over an engine without a model: real
sequences and the built-in model's tokenizer, one token per stream in every step, one step every
``--step-ms``. A client in another process reads all streams. In the middle of a run, while every
stream is open, the engine counts the event loop's CPU time, wake-ups and socket writes, and the
core thread's CPU time, for text and in total. The kernel charges CPU time to one thread, so other
processes matter little. Prints medians of ``--rounds``. Linux only.

``refusals`` fills the queue of such a server and counts the event loop's CPU time per request that
is then answered 429: on a connection of its own, and on one that stays open. ``--streams`` clients
send at the same time, ``--tokens`` requests each.

``throughput`` runs the same requests in process and over HTTP, in turn, and prints the output
tokens per second of both and the median of their ratio. On a machine with few cores the client's
CPU time is part of the cost of HTTP, so it is printed too. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse

from benchmarks.front_end import cpu, refusals, throughput
from benchmarks.front_end.client import ROUTES

COMMANDS = {
    "cpu": cpu.measure,
    "refusals": refusals.measure,
    "throughput": throughput.measure,
    "serve-paced": cpu.serve,  # the first three start the following four
    "serve-full": refusals.serve,
    "serve-model": throughput.serve,
    "bare": throughput.run_bare,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.front_end",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--endpoint", choices=ROUTES, default="chat")
    parser.add_argument("--model")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=240)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--step-ms", type=float, default=10.0)
    options = parser.parse_args()
    COMMANDS[options.command](options)


if __name__ == "__main__":
    main()
