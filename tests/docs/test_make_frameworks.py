"""Make asks npm's registry for Node's packages again until it answers."""

import os
import shutil
import subprocess

import pytest

from tests.docs.markdown import ROOT


def add_program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def make(tmp_path):
    """Make the target of the frameworks: installers write a log, a file is npm's registry."""
    program = shutil.which("make")
    if program is None:
        pytest.skip("needs make")
    programs = tmp_path / "bin"
    programs.mkdir()
    add_program(programs / "installer", f'echo install >> "{tmp_path}/log"')
    installers = f'for name in pip uv; do cp "{programs}/installer" "$3/bin/$name"; done'
    add_program(programs / "python", f'mkdir -p "$3/bin"; {installers}')  # -m venv FOLDER
    add_program(programs / "npm", f'test "$1" != view || test -e "{tmp_path}/registry"')
    target = tmp_path / "venv-frameworks" / ".installed"
    variables = (f"PYTHON={programs / 'python'}", f"VENV={tmp_path / 'venv'}")
    ours = ("MAKE", "MFLAGS")  # of the make that runs the tests
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment = clean | {"PATH": f"{programs}{os.pathsep}{clean['PATH']}"}

    def make():
        command = [program, *variables, str(target)]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)  # noqa: S603
        return target

    return make


def test_packages_that_are_missing_are_asked_for_again(make, tmp_path):
    target = make()
    reason = target.with_name("no-node-packages")
    assert reason.read_text() == "npm or its registry did not answer\n"
    assert not target.exists()
    installs = (tmp_path / "log").read_text()
    assert installs.count("install") == 2  # uv, and the packages
    (tmp_path / "registry").touch()
    assert make().exists()
    assert not reason.exists()
    assert (tmp_path / "log").read_text() == installs  # pip's part was there
    (tmp_path / "registry").unlink()
    assert make().exists()  # nothing is to be done
    assert not reason.exists()
