"""Checks of the machine and of what the server listens with."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from contextlib import closing
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

import msgspec
from packaging.requirements import Requirement

from core.contract.config import EngineConfig
from core.system.machine import ROOT, available_memory, cpu_quota, num_cores, total_memory
from server.net.connection_limit import possible_connections, raise_descriptor_limit
from server.net.endpoint import ListenError, open_endpoint
from server.settings.settings import Settings

FEATURES = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "avx_vnni", "amx_bf16", "amx_int8")
"""Features of a CPU, in the words of Linux, that change how fast the kernels are."""

LITTLE_MEMORY = 2 * 2**30
LITTLE_DISK = 5 * 10**9


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a check. A ``problem`` would stop a start; ``advice`` says what to change."""

    name: str
    state: Literal["ok", "note", "problem"]
    text: str
    advice: str = ""
    details: tuple[str, ...] = ()


def noted(name: str, text: str, advice: str = "") -> Finding:
    """A finding that is a note if there is advice."""
    return Finding(name, "note" if advice else "ok", text, advice)


def python() -> Finding:
    system = platform.system()
    text = f"{platform.python_version()} on {system} {platform.machine()}"
    return noted(
        "Python", text, "" if system == "Linux" else "only Linux is tested; kernels need it"
    )


def packages(name: str = "roseinfer") -> Finding:
    try:
        needed = [Requirement(text) for text in requires(name) or ()]
    except PackageNotFoundError:
        return Finding("packages", "note", f"{name} is not installed: it runs from its sources")
    wrong = [text for each in needed if (text := _wrong(each))]
    if wrong:
        advice = f"reinstall into an environment of its own: pip install {name}"
        return Finding("packages", "problem", "; ".join(wrong), advice)
    shown = ", ".join(f"{each} {version(each)}" for each in ("torch", "transformers"))
    return Finding("packages", "ok", shown)


def _wrong(needed: Requirement) -> str:
    """Return the fault of a package; empty if it has none."""
    if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
        return ""
    try:
        found = version(needed.name)
    except PackageNotFoundError:
        return f"{needed.name} is missing"
    if needed.specifier.contains(found, prereleases=True):
        return ""
    return f"{needed.name} {found} is not {needed.specifier}"


def cpu(root: Path = ROOT) -> Finding:
    fields: dict[str, str] = {}
    try:
        for line in (root / "proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    except OSError:
        return Finding("CPU", "note", platform.processor() or platform.machine())
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    has = [name for name in FEATURES if name in flags]
    text = f"{fields.get('model name', platform.machine())}; {', '.join(has) or 'no AVX2'}"
    advice = "answers will be slow: the kernels are made for AVX2"
    is_slow = platform.machine() == "x86_64" and "avx2" not in has
    return noted("CPU", text, advice if is_slow else "")


def memory(root: Path = ROOT) -> Finding:
    free, total = available_memory(root), total_memory(root)
    text = f"{free / 2**30:.1f} GiB can be taken of {total / 2**30:.1f} GiB"
    advice = "end other programs, or raise the limit of the container"
    return noted("memory", text, advice if free < LITTLE_MEMORY else "")


def threads(config: EngineConfig, root: Path = ROOT) -> Finding:
    cores, quota = num_cores(root), cpu_quota(root)
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # of nested regions
    wanted = config.threads or (int(given) if given.isdecimal() else cores)
    paid = "" if quota is None else f"; the control group pays for {quota:g} CPUs"
    text = f"{wanted} on {cores} physical cores{paid}"
    advice = f"more threads than cores wait for each other: --threads {cores}"
    return noted("threads", text, advice if wanted > cores else "")


def disk(environ: Mapping[str, str] = os.environ) -> Finding:
    """Room in the folder of the hub's files."""
    cache = environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = environ.get("HF_HOME") or f"{cache}/huggingface"
    folder = Path(environ.get("HF_HUB_CACHE") or home).expanduser()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    text = f"{free / 1e9:.0f} GB free for downloads in {folder}"
    return noted(
        "disk", text, "set HF_HOME to a folder with more room" if free < LITTLE_DISK else ""
    )


def port(settings: Settings) -> Finding:
    """Listen as the server would, and stop at once."""
    try:
        with closing(open_endpoint(settings)) as endpoint:
            return Finding("port", "ok", f"{endpoint.url} is free")
    except ListenError as error:
        return Finding("port", "problem", str(error))


def connections(settings: Settings) -> Finding:
    descriptors = raise_descriptor_limit()
    limit = possible_connections(settings.max_connections, descriptors)
    text = f"{limit:,} at once"
    if limit >= settings.max_connections:
        return noted("connections", text)
    advice = f"the process may have {descriptors} descriptors: raise ulimit -n"
    return noted("connections", f"{text}, of {settings.max_connections:,} wanted", advice)
