"""What becomes of each family and variant, one JSON line each.

    python -m tests.zoo [--write] [FAMILY ...]              # --write: docs/models.md
    python -m tests.zoo --device cuda --part 0/8            # each eighth family, on a GPU

Every family runs in a process of its own, with bounded memory and time: some kill theirs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import resource
import signal
import traceback
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import transformers.models.llama.modeling_llama  # noqa: F401 - what most families import, once
from transformers.utils import logging

from core.kernels.cpu.library import kernels
from tests.zoo.check import Outcome, check
from tests.zoo.page import PAGE, page
from tests.zoo.shrink import families
from tests.zoo.variants import VARIANTS

MEMORY = 8 << 30
SECONDS = 120


def main() -> None:
    """Check the named families and variants, or all families."""
    options = _options()
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    kernels()  # compiled once, for all children
    context = multiprocessing.get_context("fork")
    outcomes = {}
    part, parts = map(int, options.part.split("/"))
    for name in (options.names or families())[part::parts]:
        outcome = outcomes[name] = _checked(context, name, options.device)
        line = {"family": name, "state": outcome.state, "reason": outcome.reason}
        print(json.dumps(line), flush=True)  # noqa: T201
    if options.write:
        PAGE.write_text(page(outcomes))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo")
    parser.add_argument("names", nargs="*", metavar="FAMILY", help="all families by default")
    parser.add_argument("--write", action="store_true", help="write docs/models.md")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="only each Nth, from the Ith")
    options = parser.parse_args()
    if options.write and (options.names or options.device != "cpu" or options.part != "0/1"):
        parser.error("--write needs all families, on a CPU")
    return options


def _checked(context: multiprocessing.context.ForkContext, name: str, device: str) -> Outcome:
    reader, writer = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(name, device, writer))
    child.start()
    writer.close()
    outcome = None
    if reader.poll(SECONDS):
        with contextlib.suppress(EOFError):
            outcome = reader.recv()
    else:
        child.kill()
    child.join()
    if outcome is not None:
        return outcome
    code = child.exitcode
    how = f"signal {signal.Signals(-code).name}" if code and code < 0 else f"exit code {code}"
    return Outcome("FAILED", f"the process ended within {SECONDS} s: {how}")


def _child(name: str, device: str, writer: multiprocessing.connection.Connection) -> None:
    if device == "cpu":  # CUDA reserves addresses of the size of the GPU's memory
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    torch.set_num_threads(1)
    if not os.environ.get("ZOO_DEBUG"):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
    try:
        writer.send(check(*VARIANTS.get(name, (name, {})), device))
    except BaseException:
        traceback.print_exc()
        raise


if __name__ == "__main__":
    main()
