"""Checks that generated tokens do not depend on the batch, the kernels or the scheduling."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.gpu.options import Options, free_memory
from benchmarks.gpu.rows import Row, in_one_line
from core.contract.errors import ModelLoadError
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams

BLOCK_SIZE = 16
MAX_MODEL_LEN = 2048

SAMPLING: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.0},
    {"temperature": 0.8, "top_p": 0.95, "top_k": 20},
)


def texts(options: Options) -> Iterator[Row]:
    """Compare the tokens of a default engine with those of other engines and of ``generate``."""
    requests = _requests(options)
    base = _answers(options, requests)
    variants: list[tuple[str, dict[str, Any]]] = [("one at a time", {"max_num_seqs": 1})]
    if options.device == "cuda":
        variants += [
            ("no CUDA graphs", {"enforce_eager": True}),
            ("no async scheduling", {"async_scheduling": False}),
            ("neither", {"enforce_eager": True, "async_scheduling": False}),
        ]
    variants += [
        ("attention torch", {"attention_backend": "torch"}),
        ("small pool", {"kv_cache_memory": _bytes_of(options, 60)}),
        ("chunks of 64", {"max_num_batched_tokens": 64, "max_num_seqs": 16}),
    ]
    for name, limits in variants:
        try:
            answers = _answers(options, requests, **limits)
        except ModelLoadError as error:
            yield {"name": name, "skipped": in_one_line(error)}
            continue
        yield {"name": name, **_agreement(base, answers)}
    greedy = {r.request_id: r for r in requests if r.params.temperature == 0.0}
    oracle = _generated(options, list(greedy.values()))
    yield {"name": "transformers' generate", **_agreement(oracle, base)}


def _requests(options: Options) -> list[EngineRequest]:
    """Greedy and random requests with prompts of different lengths."""
    rng = random.Random(3)
    lengths = [1, 5, 17, 60, 130, 300, 40, 64, 100, 7, 200, 33]
    prompts = [[rng.randrange(100, 3000) for _ in range(n)] for n in lengths]
    max_tokens = 8 if options.tiny else 64
    return [
        EngineRequest(
            request_id=str(i),
            prompt_token_ids=tuple(prompt[:60] if options.tiny else prompt),
            params=SamplingParams(
                max_tokens=max_tokens, ignore_eos=True, seed=i, **SAMPLING[i % len(SAMPLING)]
            ),
        )
        for i, prompt in enumerate(prompts)
    ]


def _answers(
    options: Options, requests: list[EngineRequest], **limits: Any
) -> dict[str, list[int]]:
    """The tokens of a float32 engine; one request is added before each step."""
    answers: dict[str, list[int]] = {r.request_id: [] for r in requests}
    with options.engine("tiny", dtype="float32", **{"max_num_seqs": 16, **limits}) as loaded:
        waiting, engine = list(requests), loaded.engine
        while waiting or engine.has_work:
            if waiting:
                engine.add(waiting.pop(0))
            for output in engine.step():
                if output.error is not None:
                    raise RuntimeError(output.error)
                answers[output.request_id] += output.token_ids
            engine.check()
    return answers


def _generated(options: Options, requests: list[EngineRequest]) -> dict[str, list[int]]:
    from transformers import AutoModelForCausalLM, GenerationConfig  # noqa: PLC0415 - slow

    model = AutoModelForCausalLM.from_pretrained(
        options.model("tiny"), dtype=torch.float32, attn_implementation="eager"
    ).to(options.device)
    answers = {}
    for request in requests:
        ids = torch.tensor([request.prompt_token_ids], device=options.device)
        config = GenerationConfig(
            max_new_tokens=request.params.max_tokens, do_sample=False, pad_token_id=0
        )
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), generation_config=config, eos_token_id=-1
        )
        answers[request.request_id] = output[0, ids.shape[1] :].tolist()
    del model
    free_memory()
    return answers


def _agreement(expected: dict[str, list[int]], actual: dict[str, list[int]]) -> Row:
    num_equal = sum(actual[name] == ids for name, ids in expected.items())
    return {"ok": num_equal == len(expected), "equal": f"{num_equal} of {len(expected)}"}


def _bytes_of(options: Options, num_blocks: int) -> int:
    """Bytes of ``num_blocks`` blocks in float32 beyond one sequence of the full context."""
    shape = options.cost("tiny").shape
    longest = -(-MAX_MODEL_LEN // BLOCK_SIZE)
    return (longest + num_blocks) * BLOCK_SIZE * shape.kv_elements * 4
