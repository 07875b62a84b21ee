"""Commands that no test runs: few, each with its reason, and what of them can be checked is.

Their programs are here, or on the list of programs of others. Files and modules that they name
exist; make knows its targets; flags of ``roseinfer`` and of scripts are those of their parsers
(test_flags.py).
"""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest
import yaml

from compat_tests.support.snippets import NOT_RUN, snippets
from server.cli.main import parse_command
from server.ray.plan import plan_of
from tests.docs.markdown import ROOT, page

REASONS = {
    "CONTRIBUTING.md": {"it runs the tests"},
    "compat_tests/README.md": {"it runs the tests", "needs schemathesis"},
    "core/builtin_model/README.md": {"trains for an hour"},
    "docs/benchmarks.md": {
        "makes models of gigabytes",
        "takes minutes",
        "takes hours, and needs other servers",
        "needs an older commit",
        "needs a GPU; the rehearsal takes minutes",
    },
    "docs/deployment.md": {
        "needs a container engine",
        "needs a cluster",
        "installs a service",
        "needs HAProxy; tests/deploy/test_haproxy.py runs it with the same file",
    },
    "docs/getting-started.md": {
        "installs for the user; tests/deploy/test_install.py does it in an empty environment"
    },
    "docs/messages.md": {"needs Claude Code"},
    "docs/operating.md": {"needs a GPU"},
    "docs/sdks.md": {"Open WebUI is an application of several gigabytes"},
    "docs/several-machines.md": {"needs ray; tests/ray builds the same application"},
    "docs/sizing.md": {"takes minutes, and needs a quiet machine"},
}
"""Why the blocks of a page are not run. Whatever can run here has to."""

OTHERS = {
    *("claude", "cp", "export", "git", "haproxy", "kubectl", "open-webui", "pip", "pipx", "ray"),
    *("st", "systemctl", "uv"),
}
"""Programs that are not of this repository."""

FOLDERS = sorted(file.name for file in ROOT.iterdir() if file.is_dir() and file.name[0] != ".")


def commands() -> Iterator[tuple[str, str]]:
    """Every command that is not run, with its page."""
    for place, block in snippets():
        if NOT_RUN.fullmatch(block.mark):
            for line in block.commands:
                for command in line.split(" && "):
                    yield place.rpartition(":")[0], command


def words_of(command: str) -> list[str]:
    """The words of a command, without variables in front of it and without its path."""
    words = shlex.split(command)
    while re.match(r"\w+=", words[0]):
        words.pop(0)
    words[0] = words[0].rpartition("/")[2]
    return words


def check_python(words: list[str]) -> None:
    """A script of ours exists; of pytest, the paths, and tests of the names."""
    assert words[1] == "-m"
    module, arguments = words[2], words[3:]
    if module == "pytest":
        chosen = arguments.pop() if "-k" in arguments else ""
        text = "".join(
            file.read_text("utf-8")
            for path in arguments
            if path != "-k"
            for file in sorted((ROOT / path).glob("test_*.py"))
        )
        assert re.search(rf"def test_\w*{chosen}", text)
    elif module != "venv":
        script = ROOT / module.replace(".", "/")
        assert script.with_suffix(".py").is_file() or (script / "__main__.py").is_file()


def check_make(words: list[str]) -> None:
    """Make finds what to do."""
    make = shutil.which("make")
    if make is None:
        pytest.skip("needs make")
    command = [make, "--dry-run", *words[1:]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    assert done.stdout


def check_docker(words: list[str]) -> None:
    """Arguments of a build are those of the Dockerfile; what a container runs is a command."""
    if words[1] == "run":
        arguments = words[words.index("roseinfer") + 1 :]
        if arguments:
            parse_command(arguments, {})
    elif words[1] == "build":
        dockerfile = (ROOT / words[words.index("--file") + 1]).read_text("utf-8")
        for word, value in itertools.pairwise(words):
            if word == "--build-arg":
                assert f"\nARG {value.partition('=')[0]}=" in dockerfile
    else:
        assert words[1:2] == ["compose"]


def check_serve(words: list[str]) -> None:
    """Ray Serve's command: the application exists and takes these arguments."""
    assert words[:2] == ["serve", "run"]
    module, _, name = words[2].partition(":")
    source = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text("utf-8")
    assert f"\ndef {name}(" in source
    assert plan_of(dict(word.split("=", 1) for word in words[3:])).argv


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "docker": check_docker,
    "make": check_make,
    "python": check_python,
    "python3": check_python,
    "roseinfer": lambda words: None,  # test_flags.py parses all of them
    "serve": check_serve,
}


def test_what_is_not_run_is_on_the_list() -> None:
    found: dict[str, set[str]] = {}
    for place, block in snippets():
        if reason := NOT_RUN.fullmatch(block.mark):
            found.setdefault(place.rpartition(":")[0], set()).add(reason[1])
    assert found == REASONS


@pytest.mark.parametrize(("name", "command"), sorted(set(commands())))
def test_what_a_command_names_exists(name: str, command: str) -> None:
    words = words_of(command)
    CHECKS.get(words[0], lambda words: None)(words)
    assert words[0] in CHECKS.keys() | OTHERS
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    for word in words[1:]:
        if word.startswith("dist/"):
            assert word == f"dist/roseinfer-{version[1]}-py3-none-any.whl"
        elif word.partition("/")[0] in FOLDERS and "/" in word:
            assert (ROOT / word).exists(), f"{name}: {word}"


def test_reasons_name_tests_that_exist() -> None:
    for reasons in REASONS.values():
        for path in re.findall(r"tests/[\w/]+(?:\.py)?", " ".join(reasons)):
            assert (ROOT / path).exists(), path


def test_applications_of_ray_serve_are_complete() -> None:
    """tests/ray runs the file, with another model and sizes."""
    blocks = page(ROOT / "docs" / "several-machines.md").blocks
    (block,) = (block for block in blocks if block.language == "yaml")
    for application in yaml.safe_load(block.text)["applications"]:
        assert application["import_path"] == "server.ray.app:build"
        assert plan_of(application["args"]).argv


@pytest.mark.parametrize(
    "command",
    [
        "python -m benchmarks.no_such_script",
        "make no-such-target",
        "docker build --file deploy/docker/Dockerfile --build-arg NO_SUCH=1 .",
        "docker run roseinfer serve --no-such-flag",
        "serve run server.ray.app:build no_such_option=1",
        "kubectl apply --filename deploy/kubernetes/no-such-file.yaml",
        "pip install dist/roseinfer-0.0.1-py3-none-any.whl",
        "no-such-program",
    ],
)
def test_a_stale_command_is_noticed(command: str) -> None:
    with pytest.raises((AssertionError, SystemExit, ValueError)):
        test_what_a_command_names_exists("a page", command)
