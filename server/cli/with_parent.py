"""A server that ends with its parent: ``python -m server.cli.with_parent PARENT FLAGS``.

It is ``roseinfer serve FLAGS``, but gets SIGTERM when its parent ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from server.cli.main import main

PR_SET_PDEATHSIG = 1  # of prctl(2)


if __name__ == "__main__":
    if sys.platform == "linux":  # elsewhere the server outlives a parent that is killed
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(sys.argv[1]):  # it ended before
            raise SystemExit(0)
    main(["serve", *sys.argv[2:]])
