"""``pip wheel``, and the wheel as a program of its own, as docs/getting-started.md says it."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.serving import check_serves, clean_environ
from tests.docs.markdown import ROOT, page

pytestmark = pytest.mark.deploy

COMMANDS = list(page(ROOT / "docs" / "getting-started.md").shell_commands())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the repository with the wheel that the documented command makes."""
    folder = tmp_path_factory.mktemp("checkout") / "source"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "site", "*.egg-info")
    shutil.copytree(ROOT, folder, ignore=ignored)
    (command,) = (command for command in COMMANDS if command.startswith("pip wheel"))
    subprocess.run([sys.executable, "-m", *command.split()], cwd=folder, check=True)
    return folder


def test_pipx_makes_a_program_that_serves(checkout, tmp_path):
    if importlib.util.find_spec("pipx") is None:
        pytest.skip("needs pipx")
    (command,) = (command for command in COMMANDS if command.startswith("pipx install"))
    folders = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    environ = clean_environ() | folders
    subprocess.run([sys.executable, "-m", *command.split()], cwd=checkout, env=environ, check=True)
    check_serves([str(tmp_path / "bin" / "roseinfer"), "serve"], tmp_path)


def test_uv_makes_a_program_that_serves(checkout, tmp_path):
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        pytest.skip("needs uv")
    (command,) = (command for command in COMMANDS if command.startswith("uv tool install"))
    folders = {"UV_TOOL_DIR": str(tmp_path / "uv"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    environ = clean_environ() | folders
    if links := environ.get("PIP_FIND_LINKS"):  # a machine's own packages, as pip finds them
        environ |= {"UV_FIND_LINKS": links}
    subprocess.run([uv, *command.split()[1:]], cwd=checkout, env=environ, check=True)
    check_serves([str(tmp_path / "bin" / "roseinfer"), "serve"], tmp_path)


def test_the_wheel_serves_in_an_empty_environment(checkout, tmp_path):
    (wheel,) = (checkout / "dist").glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "empty"], check=True)
    python = tmp_path / "empty" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], cwd=tmp_path, check=True)
    check_serves([str(python.with_name("roseinfer")), "serve"], tmp_path)
