"""The server under a limit of open descriptors: ``... NUM_DESCRIPTORS [flags of serve]``."""

from __future__ import annotations

import resource
import sys


def main() -> None:
    number = int(sys.argv.pop())
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))
    sys.argv[1:1] = ["serve"]
    from server.cli.main import main as serve  # noqa: PLC0415 - under the limit

    serve()


if __name__ == "__main__":
    main()
