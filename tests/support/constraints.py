"""The releases that constraints.txt names."""

from pathlib import Path

FILE = Path(__file__).parents[2] / "constraints.txt"


def constraints() -> dict[str, str]:
    """Each line of the file: the release by the package's name, as it is written there."""
    lines = FILE.read_text("utf-8").splitlines()
    pins = (line.partition("==") for line in lines if not line.startswith("#"))
    return {name: release for name, _, release in pins}
