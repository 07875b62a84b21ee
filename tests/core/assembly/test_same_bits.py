"""A request gets the same bits in every batch, with any chunks, cache and number of threads."""

import hashlib
import itertools
from pathlib import Path

import pytest
from msgspec.structs import replace

from core.assembly.build import load_engine
from core.contract.config import EngineConfig, ModelConfig
from core.contract.messages import EngineRequest, StepOutput
from core.engine.engine import Engine
from core.kernels.cpu.library import kernels
from tests.support.checkpoints import CONFIGS, VOCAB_SIZE, random_model, tiny_model
from tests.support.each import each
from tests.support.mixtures import MIXTURES, shared_mixture
from tests.support.threads import num_threads
from tests.support.tiny_engine import request, run
from tests.support.tokenizers import byte_level

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(kernels() is None, reason="torch's own kernels promise no bits"),
]

CONTEXT = 256
FLOAT32, BFLOAT16, INT8 = ("float32", "none"), ("bfloat16", "none"), ("bfloat16", "int8")
INT4 = ("bfloat16", "int4")

MODELS = (
    *itertools.product((None, "gpt2", "qwen3"), (FLOAT32, BFLOAT16, INT8)),
    ("gemma3", FLOAT32),  # sliding windows
    ("gpt2", INT4),
    ("qwen3", INT4),
    ("qwen3_moe", BFLOAT16),
    ("gpt_oss", INT8),  # sliding windows too
)
"""None is the built-in model."""

CACHED = (
    *((*model, "auto") for model in MODELS),
    (None, BFLOAT16, "int8"),
    ("gemma3", FLOAT32, "int8"),
)
"""The same, with the type of the KV cache."""

SETTINGS = ((16, 1, True), (2048, 2, True), (48, 2, False))
"""Tokens of a prompt's chunk, threads, and whether prefixes are cached."""


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of tiny models, by family."""
    folders = {}
    for family in ("gpt2", "qwen3", "gemma3", "qwen3_moe", "gpt_oss"):
        folder: Path = tmp_path_factory.mktemp(family)
        model = shared_mixture(family) if family in MIXTURES else tiny_model(family)
        model.save_pretrained(folder)
        byte_level(VOCAB_SIZE).save_pretrained(folder)
        folders[family] = str(folder)
    return folders


def engine(model: str | None, weights: tuple[str, str], **limits: object) -> Engine:
    dtype, quantization = weights
    source = ModelConfig(model=model, device="cpu", dtype=dtype, quantization=quantization)
    sizes = {"kv_cache_memory": 8 << 20, "max_num_seqs": 48, "max_model_len": CONTEXT, **limits}
    return load_engine(source, EngineConfig(**sizes)).engine


def subject(name: str, *, seed: int | None) -> EngineRequest:
    """A greedy request, or a seeded one, that reports the logprobs of its tokens."""
    prompt = [3 + i * i % 190 for i in range(150)]
    return request(
        name, prompt, 24, logprobs=3, seed=seed, temperature=0.0 if seed is None else 0.8
    )


def neighbours(count: int) -> list[EngineRequest]:
    """Requests of many lengths. Some have a long prefix in common with the subject."""
    start = [3 + i * i % 190 for i in range(136)]
    return [
        request(f"n{i}", [*start[: i % 3 * 68], *range(3, 4 + i * 5 % 40)], 4 + i * 7 % 30)
        for i in range(count)
    ]


def digest(outputs: list[StepOutput]) -> str:
    tokens = [entry for output in outputs for entry in output.logprobs]
    assert len(tokens) == 24
    return hashlib.sha256(
        repr([(t.token_id, t.logprob, t.top) for t in tokens]).encode()
    ).hexdigest()


@each("name, weights, cache", CACHED)
def test_one_hash_for_all_settings(
    name: str | None, weights: tuple[str, str], cache: str, checkpoints: dict[str, str]
) -> None:
    """Two requests, alone and beside many; the second time on cached prefixes."""
    found: dict[str, dict[str, list[str]]] = {"greedy": {}, "seeded": {}}
    greedy, seeded = subject("greedy", seed=None), subject("seeded", seed=5)
    for chunk, count, is_caching in SETTINGS:
        with num_threads(count):
            made = engine(
                checkpoints.get(name or ""),
                weights,
                max_num_batched_tokens=max(chunk, 48),
                prefill_chunk_size=chunk,
                enable_prefix_caching=is_caching,
                threads=count,
                kv_cache_dtype=cache,
            )
            for requests in ([greedy], [seeded], [*neighbours(24), greedy, seeded]):
                outputs = run(made, list(requests))
                for label in found.keys() & outputs.keys():
                    setting = f"{chunk=} {count=} {is_caching=} beside {len(requests) - 1}"
                    found[label].setdefault(digest(outputs[label]), []).append(setting)
    for hashes in found.values():
        assert len(hashes) == 1, list(hashes.values())


@each("weights", [BFLOAT16, INT8, INT4])
def test_tokens_are_the_same_if_no_logits_are_written(
    weights: tuple[str, str], checkpoints: dict[str, str]
) -> None:
    """Logits are written if a row of the step wants logprobs. Many rows, then one."""
    made = engine(checkpoints["qwen3"], weights)
    for count in (40, 1):
        wanted = neighbours(count)
        plain = run(made, wanted)
        scored = run(
            made, [replace(each, params=replace(each.params, logprobs=0)) for each in wanted]
        )
        for name, outputs in plain.items():
            tokens = [token for output in outputs for token in output.token_ids]
            assert tokens == [token for output in scored[name] for token in output.token_ids]


@each("weights", [INT4, INT8])
def test_threads_that_share_the_work_on_a_row(weights: tuple[str, str], tmp_path: Path) -> None:
    """The model is so large that a single token is computed by all threads."""
    config = CONFIGS["qwen3"]()
    config.hidden_size, config.intermediate_size = 256, 768
    random_model(config).save_pretrained(tmp_path)
    byte_level(VOCAB_SIZE).save_pretrained(tmp_path)
    hashes = set()
    for count in (1, 2, 5):
        with num_threads(count):
            made = engine(str(tmp_path), weights, threads=count)
            hashes.add(digest(run(made, [subject("subject", seed=None)])["subject"]))
    assert len(hashes) == 1
