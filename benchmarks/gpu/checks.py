"""Whether what is fast is right: attention against the oracle, texts against plainer ways."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch

from bench.words import random_prompt
from benchmarks.gpu.options import Options, free_memory
from core.attention.base import backend_factory
from core.contract.errors import ModelLoadError
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.kv.storage import KVStorage
from core.layer_spec import LayerSpec
from core.model_input import ModelInput, build_model_input
from core.sequence import Sequence

BACKENDS = {"cuda": ("torch", "triton"), "cpu": ("torch", "cpu")}
BLOCK_SIZE = 16
TOLERANCES = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 4e-2}

LAYERS = {
    "32 heads over 8": LayerSpec(32, 8, 128, 128, 128**-0.5, None),
    "12 heads": LayerSpec(12, 12, 64, 64, 0.125, None),
    "8 heads over 4, window": LayerSpec(8, 4, 256, 256, 0.0625, 512),
    "odd sizes": LayerSpec(6, 2, 80, 48, 0.2, None),
}
SHAPES = {
    "decodes": [(13, 1), (0, 1), (700, 1), (3, 1), (2047, 1), (255, 1), (256, 1)],
    "prompts": [(0, 300), (0, 17), (0, 1), (0, 64)],
    "mixed": [(700, 1), (0, 200), (1000, 65), (30, 2), (61, 1), (512, 512), (2, 1)],
}


def batch_of(shapes: list[tuple[int, int]], rng: random.Random) -> tuple[ModelInput, int]:
    """Sequences of (tokens before, tokens now) with shuffled blocks; and how many blocks."""
    num_blocks = sum(-(-sum(shape) // BLOCK_SIZE) for shape in shapes) + 5
    free = rng.sample(range(num_blocks), num_blocks)
    scheduled = []
    for i, (before, now) in enumerate(shapes):
        ids = (1,) * (before + now)
        params = SamplingParams(max_tokens=1)
        request = EngineRequest(request_id=str(i), prompt_token_ids=ids, params=params)
        sequence = Sequence(request, seed=0)
        for _ in range(-(-len(ids) // BLOCK_SIZE)):
            sequence.block_table.append(free.pop())
        sequence.num_computed_tokens = before
        scheduled.append((sequence, now))
    return build_model_input(scheduled, [], block_size=BLOCK_SIZE), num_blocks


def attention(options: Options) -> Iterator[dict[str, Any]]:
    """Compare every backend with the torch backend in float32 on the CPU."""
    dtypes = [torch.float32] if options.tiny else list(TOLERANCES)
    for backend in BACKENDS[options.device]:
        for dtype in dtypes:
            errors = {}
            try:
                for layer_name, layer in LAYERS.items():
                    for shape_name, shapes in SHAPES.items():
                        if options.tiny and layer.head_dim > 100:
                            continue
                        errors[f"{layer_name}, {shape_name}"] = _error(
                            options, backend, layer, shapes, dtype
                        )
            except ModelLoadError as error:
                yield {"name": f"{backend} {dtype}", "skipped": _line(error)}
                continue
            except Exception as error:  # noqa: BLE001 - the next backend can still be checked
                yield {"name": f"{backend} {dtype}", "ok": False, "says": _line(error)}
                continue
            worst = max(errors, key=lambda key: errors[key])
            yield {
                "name": f"{backend} {dtype}",
                "ok": errors[worst] <= TOLERANCES[dtype],
                "max_error": errors[worst],
                "of": worst,
            }


def _error(
    options: Options,
    backend: str,
    layer: LayerSpec,
    shapes: list[tuple[int, int]],
    dtype: torch.dtype,
) -> float:
    """Largest error against the torch backend in float32 on the CPU, over the same numbers."""
    batch, num_blocks = batch_of(shapes, random.Random(0))
    found = []
    for name, where, compute_dtype in (
        ("torch", torch.device("cpu"), torch.float32),
        (backend, torch.device(options.device), dtype),
    ):
        generator = torch.Generator().manual_seed(1)
        storage = KVStorage(
            [layer], num_blocks=num_blocks, block_size=BLOCK_SIZE, dtype=compute_dtype, device=where
        )
        for tensor in (*storage.keys, *storage.values):
            tensor.copy_(torch.randn(tensor.shape, generator=generator).to(dtype))
        sizes = (
            (layer.num_heads, layer.head_dim),
            (layer.num_kv_heads, layer.head_dim),
            (layer.num_kv_heads, layer.value_dim),
        )
        states = [
            torch.randn(len(batch.token_ids), *size, generator=generator)
            .to(dtype)
            .to(where, compute_dtype)
            for size in sizes
        ]
        attend = backend_factory(name)(storage, [layer])
        with torch.inference_mode():
            attend.plan(batch.on(where))
            found.append(attend.forward(*states, 0).float().cpu())
    return float((found[0] - found[1]).abs().max())


def texts(options: Options) -> Iterator[dict[str, Any]]:
    """The same tokens in any batch, with and without recordings, launches ahead and kernels."""
    requests = _requests(options)
    base = _answers(options, requests)
    variants: list[tuple[str, dict[str, Any]]] = [("one at a time", {"max_num_seqs": 1})]
    if options.device == "cuda":
        variants += [
            ("no CUDA graphs", {"enforce_eager": True}),
            ("nothing launched ahead", {"async_scheduling": False}),
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
            yield {"name": name, "skipped": _line(error)}
            continue
        yield {"name": name, **_agreement(base, answers)}
    greedy = {r.request_id: r for r in requests if r.params.temperature == 0.0}
    oracle = _generated(options, list(greedy.values()))
    yield {"name": "transformers' generate", **_agreement(oracle, base)}


def _requests(options: Options) -> list[EngineRequest]:
    """Greedy and drawn ones; prompts of all lengths."""
    rng = random.Random(3)
    lengths = [1, 5, 17, 60, 130, 300, 40, 64, 100, 7, 200, 33]
    prompts = [[rng.randrange(100, 3000) for _ in range(n)] for n in lengths]
    drawn: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 1.0},
        {"temperature": 0.0},
        {"temperature": 0.8, "top_p": 0.95, "top_k": 20},
    ]
    return [
        EngineRequest(
            request_id=str(i),
            prompt_token_ids=tuple(prompt[:60] if options.tiny else prompt),
            params=SamplingParams(
                max_tokens=8 if options.tiny else 64, ignore_eos=True, seed=i, **drawn[i % 4]
            ),
        )
        for i, prompt in enumerate(prompts)
    ]


def _answers(
    options: Options, requests: list[EngineRequest], **limits: Any
) -> dict[str, list[int]]:
    """What an engine says in float32, requests joining one a step."""
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


def _agreement(expected: dict[str, list[int]], actual: dict[str, list[int]]) -> dict[str, Any]:
    num_equal = sum(actual[name] == ids for name, ids in expected.items())
    return {"ok": num_equal == len(expected), "equal": f"{num_equal} of {len(expected)}"}


def _bytes_of(options: Options, num_blocks: int) -> int:
    """Memory for so many blocks of float32."""
    shape = options.cost("tiny").shape
    longest = -(-2048 // BLOCK_SIZE)  # one sequence has to fit
    return (longest + num_blocks) * BLOCK_SIZE * shape.kv_elements * 4


def memory(options: Options) -> Iterator[dict[str, Any]]:
    """An engine of the default size: what it takes, and that it lives on when memory runs out."""
    with options.engine("gpt2") as loaded:
        rng = random.Random(0)
        ids = loaded.tokenizer.encode(random_prompt(rng, 20), add_special_tokens=True)
        params = SamplingParams(max_tokens=4, ignore_eos=True)
        row: dict[str, Any] = {"name": "memory", "kv_tokens": loaded.info.num_kv_tokens}
        if options.device == "cuda":
            free, total = torch.cuda.mem_get_info()
            row |= {"total_gib": total / 2**30, "used_share": 1 - free / total}
        engine: Any = loaded.engine
        runner = engine._runner  # noqa: SLF001 - to let it fail
        launch = runner.launch

        def fail(_plan: object) -> None:
            raise torch.OutOfMemoryError("out of memory, for a test")

        outcomes = []
        for name, how in (("fails", fail), ("lives", launch)):
            runner.launch = how
            engine.add(EngineRequest(request_id=name, prompt_token_ids=tuple(ids), params=params))
            outputs = []
            while engine.has_work:
                outputs += engine.step()
            outcomes.append(outputs[-1].error is None)
        yield row | {"ok": outcomes == [False, True]}


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
