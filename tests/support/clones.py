"""A fresh clone of this repository, as a user has it after installing the dependencies."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def clone(folder: Path) -> Path:
    """Clone what is committed, with an environment that has our dependencies, but not roseinfer.

    Nothing is downloaded: the environment sees the packages of the one that runs the tests.
    """
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs git and a repository")
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)  # noqa: S603, S607
    venv = folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)  # noqa: S603
    old = ["-m", "pip", "--quiet", "uninstall", "--yes", "setuptools"]  # that Python brings
    subprocess.run([venv / "bin" / "python", *old], check=True)  # noqa: S603
    (packages,) = venv.glob("lib/python*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("\n".join(ours))
    (venv / ".dependencies").touch()  # what make would have made
    return folder
