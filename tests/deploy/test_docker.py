"""The image's Dockerfile: what it says, and what its steps do in an empty directory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from server.cli.main import parse_command
from server.settings.settings import Settings
from tests.deploy.dockerfile import stages_of
from tests.deploy.serving import check_serves, clean_environ
from tests.docs.markdown import ROOT
from tests.support.constraints import constraints

FOLDER = ROOT / "deploy" / "docker"
STAGES = stages_of(FOLDER / "Dockerfile")
PACKAGES = {"bench", "core", "schemas", "server"}
PREFIX = "/opt/roseinfer"


def copied() -> list[tuple[list[str], str]]:
    """What the build copies from the repository: sources and target."""
    pairs = [value.split() for value in STAGES["build"].values("COPY")]
    return [(words[:-1], words[-1]) for words in pairs]


def sources() -> set[str]:
    return {name for names, _ in copied() for name in names}


def test_the_stages_build_on_each_other():
    assert list(STAGES) == ["build", "runtime", "cuda", "cpu"]
    assert STAGES["cpu"].base == STAGES["cuda"].base == "runtime"
    assert {STAGES["build"].base, STAGES["runtime"].base} == {"python:${PYTHON_VERSION}-slim"}


def test_the_build_copies_what_a_wheel_is_made_of():
    assert sources() == PACKAGES | {"pyproject.toml", "README.md", "LICENSE", "constraints.txt"}
    assert all((ROOT / name).exists() for name in sources())


def test_the_context_holds_what_the_build_copies():
    lines = (FOLDER / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert {line[1:] for line in lines if line.startswith("!")} == sources()


def test_torch_is_the_one_that_make_installs():
    pinned = [f"torch=={constraints()['torch']}"]
    assert [torch for run in STAGES["build"].values("RUN") for torch in torches(run)] == pinned


def torches(command: str) -> list[str]:
    return re.findall(r'"(torch==[\d.]+)"', command)


def test_the_server_is_not_root_and_gets_the_signals():
    runtime = STAGES["runtime"]
    uid, _, gid = runtime.values("USER")[-1].partition(":")
    assert int(uid) > 0
    assert int(gid) > 0
    assert f"--uid {uid}" in " ".join(runtime.values("RUN"))
    assert runtime.values("STOPSIGNAL") == ["SIGTERM"]
    words = [*runtime.exec_form("ENTRYPOINT"), *runtime.exec_form("CMD")]  # no shell in between
    assert words[0] == "roseinfer"
    environ = dict(re.findall(r"(ROSEINFER_\w+)=(\S+)", " ".join(runtime.values("ENV"))))
    settings = parse_command(words[1:], environ)
    assert isinstance(settings, Settings)
    assert settings.host == "0.0.0.0"  # noqa: S104 - a container publishes its ports itself
    assert runtime.values("EXPOSE") == [str(settings.port)]


def test_verdicts_are_made_by_root_for_the_interpreter_that_serves():
    """In the environment, where the server's user reads and does not write; no kernels stay."""
    instructions = STAGES["runtime"].instructions
    [proof] = [i for i in instructions if "core.proof" in i[1]]
    assert proof == ("RUN", "HOME=/tmp/proof python -m core.proof && rm -rf /tmp/proof")
    keys = [key for key, _ in instructions]
    assert keys.index("ENV") < instructions.index(proof) < keys.index("USER")
    assert find_spec("core.proof.__main__") is not None


def test_cuda_is_marked_as_untested():
    text = (FOLDER / "Dockerfile").read_text("utf-8")
    assert re.search(r"# Untested[^\n]*\n(# [^\n]*\n)*FROM runtime AS cuda", text)


def step(command: str, folder: Path) -> str:
    """A RUN line with another prefix and this Python."""
    return command.replace(PREFIX, str(folder / "opt")).replace(
        "python -m venv", f"{sys.executable} -m venv"
    )


@pytest.mark.deploy
def test_packages_of_the_system_can_be_installed():
    """As far as it goes without an engine: apt-get finds them, and useradd exists."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip("needs root on Debian")
    commands = " ".join(STAGES["runtime"].values("RUN"))
    install = re.search(r"apt-get (install --yes [\w+ -]*)", commands)
    assert install
    subprocess.run(["apt-get", "--simulate", *install[1].split()], check=True)
    assert shutil.which("useradd")


@pytest.mark.deploy
def test_the_steps_of_the_build_make_a_server_in_an_empty_directory(tmp_path):
    """``python -m venv``, two installations and the command, in the Dockerfile's own words."""
    source = tmp_path / "source"
    source.mkdir()
    for names, target in copied():
        for name in names:
            place = source / (name if target == "./" else target)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, place)
    for command in STAGES["build"].values("RUN"):
        run = ["sh", "-ec", step(command, tmp_path)]
        subprocess.run(run, cwd=source, env=clean_environ(), check=True)
    shutil.rmtree(source)
    runtime = STAGES["runtime"]
    program, *arguments = [*runtime.exec_form("ENTRYPOINT"), *runtime.exec_form("CMD")]
    check_serves([str(tmp_path / "opt" / "bin" / program), *arguments], tmp_path)
