"""``python -m tests.zoo [--write] [FAMILY ...]``: what becomes of each family, one JSON line each.

Every family runs in a process of its own, with bounded memory and time: some kill theirs.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import resource
import signal
import sys
import traceback
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from transformers.utils import logging

from core.kernels.cpu.library import kernels
from tests.zoo.check import Outcome, check
from tests.zoo.page import PAGE, page
from tests.zoo.shrink import families
from tests.zoo.variants import VARIANTS

MEMORY = 8 << 30
SECONDS = 120


def main() -> None:
    """Check the named families and variants, or all families, and ``--write`` the page."""
    writes = "--write" in sys.argv
    names = [name for name in sys.argv[1:] if name != "--write"]
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    kernels()  # compiled once, for all children
    context = multiprocessing.get_context("fork")
    outcomes = {}
    for name in names or families():
        outcome = outcomes[name] = _checked(context, name)
        line = {"family": name, "state": outcome.state, "reason": outcome.reason}
        print(json.dumps(line), flush=True)  # noqa: T201
    if writes and not names:
        PAGE.write_text(page(outcomes))


def _checked(context: multiprocessing.context.ForkContext, name: str) -> Outcome:
    reader, writer = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(name, writer))
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


def _child(name: str, writer: multiprocessing.connection.Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    torch.set_num_threads(1)
    if not os.environ.get("ZOO_DEBUG"):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
    try:
        writer.send(check(*VARIANTS.get(name, (name, {}))))
    except BaseException:
        traceback.print_exc()
        raise


if __name__ == "__main__":
    main()
