"""Checks of the machine: Python, packages, CPU, memory, threads, disk.

Checks of what the server listens with: the port, connections.
"""

from __future__ import annotations

import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from core.contract.config import EngineConfig
from core.machine import ROOT, available_memory, cpu_quota, num_cores, total_memory
from server.cli.doctor.finding import Finding
from server.net.connection_limit import possible_connections, raise_descriptor_limit
from server.net.endpoint import ListenError, open_endpoint
from server.settings.settings import Settings

FEATURES = (
    "avx2",
    "avx512f",
    "avx512_bf16",
    "avx512_vnni",
    "avx_vnni",
    "amx_bf16",
    "amx_int8",
)
"""Of the CPU, in the words of Linux, that change how fast the kernels are."""

LITTLE_MEMORY = 2 * 2**30
LITTLE_DISK = 5 * 10**9


def python() -> Finding:
    """The interpreter and the system."""
    system = platform.system()
    text = f"{platform.python_version()} on {system} {platform.machine()}"
    if system != "Linux":
        return Finding("Python", "note", text, "only Linux is tested; kernels need it")
    return Finding("Python", "ok", text)


def packages(name: str = "roseinfer") -> Finding:
    """Whether every package that roseinfer needs is there, in a version that it supports."""
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
    """What is wrong with a package; empty if nothing is."""
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
    """The CPU's name and the features that the kernels use."""
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
    if platform.machine() == "x86_64" and "avx2" not in has:
        return Finding("CPU", "note", text, "answers will be slow: the kernels are made for AVX2")
    return Finding("CPU", "ok", text)


def memory(root: Path = ROOT) -> Finding:
    """What the process may take, of what there is."""
    free, total = available_memory(root), total_memory(root)
    text = f"{free / 2**30:.1f} GiB can be taken of {total / 2**30:.1f} GiB"
    if free < LITTLE_MEMORY:
        advice = "end other programs, or raise the limit of the container"
        return Finding("memory", "note", text, advice)
    return Finding("memory", "ok", text)


def threads(config: EngineConfig, root: Path = ROOT) -> Finding:
    """How many threads will compute, and how many cores there are for them."""
    cores, quota = num_cores(root), cpu_quota(root)
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # of nested regions
    wanted = config.threads or (int(given) if given.isdecimal() else cores)
    paid = "" if quota is None else f"; the control group pays for {quota:g} CPUs"
    text = f"{wanted} on {cores} physical cores{paid}"
    if wanted > cores:
        advice = f"more threads than cores wait for each other: --threads {cores}"
        return Finding("threads", "note", text, advice)
    return Finding("threads", "ok", text)


def disk(environ: dict[str, str] | None = None) -> Finding:
    """Room where the hub's files go."""
    given = os.environ if environ is None else environ
    home = given.get("HF_HOME") or str(
        Path(given.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface"
    )
    folder = Path(given.get("HF_HUB_CACHE") or home).expanduser()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    text = f"{free / 1e9:.0f} GB free for downloads in {folder}"
    if free < LITTLE_DISK:
        return Finding("disk", "note", text, "set HF_HOME to a folder with more room")
    return Finding("disk", "ok", text)


def port(settings: Settings) -> Finding:
    """Listen as the server would, and stop at once."""
    try:
        endpoint = open_endpoint(settings)
    except ListenError as error:
        return Finding("port", "problem", str(error))
    try:
        return Finding("port", "ok", f"{endpoint.url} is free")
    finally:
        endpoint.close()


def connections(settings: Settings) -> Finding:
    """How many connections the limit of descriptors leaves."""
    descriptors = raise_descriptor_limit()
    limit = possible_connections(settings.max_connections, descriptors)
    text = f"{limit:,} at once"
    if limit < settings.max_connections:
        return Finding(
            "connections",
            "note",
            f"{text}, of {settings.max_connections:,} wanted",
            f"the process may have {descriptors} descriptors: raise ulimit -n",
        )
    return Finding("connections", "ok", text)
