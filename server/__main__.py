"""``python -m server``: the command ``roseinfer``."""

from server.cli.main import main

if __name__ == "__main__":
    main()
