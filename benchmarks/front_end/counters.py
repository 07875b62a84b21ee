"""ThreadCounters: what a server's threads cost, as the kernel counts it."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path


class ThreadCounters:
    """The kernel's counters of the event loop's thread and of this one. Core thread only."""

    def __init__(self) -> None:
        loop = threading.main_thread()
        assert loop.ident is not None
        self._clock = time.pthread_getcpuclockid(loop.ident)
        self._task = Path(f"/proc/self/task/{loop.native_id}")

    def read(self) -> dict[str, float]:
        """Totals so far: CPU seconds, wake-ups, writes."""
        return {
            "loop_cpu": time.clock_gettime(self._clock),
            "loop_sleeps": self._number("status", "voluntary_ctxt_switches"),
            "loop_writes": self._number("io", "syscw"),
            "core_cpu": time.thread_time(),
        }

    def _number(self, file: str, name: str) -> int:
        found = re.search(rf"^{name}:\s*(\d+)", (self._task / file).read_text(), re.MULTILINE)
        assert found
        return int(found[1])
