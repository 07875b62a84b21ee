"""The modules without a document, tested by node's own test runner."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from server.ui.routes import FOLDER

TESTS = Path(__file__).with_name("javascript")


@pytest.fixture(scope="module")
def node():
    found = shutil.which("node")
    if found is None:
        pytest.skip("node is not installed")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
    if int(version.stdout.removeprefix("v").split(".")[0]) < 20:
        pytest.skip(f"node 20 is needed, not {version.stdout.strip()}")
    return found


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """The page and its tests beside a package.json that says that .js files are modules."""
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(FOLDER, folder / "static")
    shutil.copytree(TESTS, folder / "tests")
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


@pytest.mark.parametrize("test", sorted(path.name for path in TESTS.glob("*.test.js")))
def test_modules(node, copied, test):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NODE_")}
    done = subprocess.run(
        [node, "--test", f"tests/{test}"],
        cwd=copied,
        env=clean,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "# pass 0" not in done.stdout
