"""Structured output: whether its promises hold, and what they cost.

    python -m benchmarks.structured promises [--count 100]
    python -m benchmarks.structured overhead [--shape qwen3-0.6b] [--model DIR] [--dtype bfloat16]

``promises`` starts a server of the built-in model and asks, at temperature 1, for JSON of random
schemas and for required and named calls of tools with random parameters. Every answer that ended
by itself (finish reason ``stop``, or ``tool_calls``) must validate against its schema; answers cut
by the length limit are counted apart. Ends with exit code 1 if any promise was broken.

``overhead`` compares the time of a decode step of 32 sequences in process, without HTTP: free,
and constrained by a JSON schema each. The two take turns, and the ratio of the medians is printed
for each turn. Weights are random, of the shape of Qwen3-0.6B and with a vocabulary of its size,
made on the spot unless ``--model`` names a directory (which is filled if it does not exist). Let
nothing else run meanwhile. ``--shape tiny`` shows that the program works, and nothing more.

Both run from the root of the repository with the development dependencies installed.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from compat_tests.support.api import CHAT, Api, Json
from compat_tests.support.process import ServerProcess
from core.build import LoadedEngine, load_engine
from core.contract.config import EngineConfig, ModelConfig
from core.contract.grammar import Grammar, json_schema
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from tests.support.schemas import random_schema

WIDTH = 16
"""Requests of ``promises`` at the same time."""

BATCH = 32
PROMPT_TOKENS = 32
OUTPUT_TOKENS = 64

CHECKER = Draft202012Validator.FORMAT_CHECKER
"""Formats of this draft; those of others have the same names and mean something else."""

# Promises.


def promises(count: int) -> bool:
    """Ask for everything ``count`` times; whether all that ended is right."""
    server = ServerProcess()
    try:
        api = Api(server.wait_ready())
        return all(
            [
                run("random schemas, temperature 1", count, lambda i: ask_json(api, i)),
                run("required calls", count, lambda i: ask_call(api, i, is_named=False)),
                run("named calls", count, lambda i: ask_call(api, i, is_named=True)),
            ]
        )
    finally:
        server.stop()


def run(what: str, count: int, ask: Callable[[int], str]) -> bool:
    """Print how often there was which outcome; whether none was wrong."""
    start = time.monotonic()
    with ThreadPoolExecutor(WIDTH) as pool:
        outcomes = collections.Counter(pool.map(ask, range(count)))
    took = time.monotonic() - start
    shown = ", ".join(f"{outcome} {number}" for outcome, number in sorted(outcomes.items()))
    print(f"{what}: {shown} of {count} ({took:.0f} s)", flush=True)
    return set(outcomes) <= {"right", "cut"}


def ask_json(api: Api, seed: int) -> str:
    """One answer of a random schema: right, cut, or what is wrong with it."""
    schema = random_schema(seed)
    response_format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    choice, problem = asked(api, seed, response_format=response_format)
    if choice is None:
        return problem
    if choice["finish_reason"] == "length":
        return "cut"
    return judged(choice["message"]["content"], schema)


def ask_call(api: Api, seed: int, *, is_named: bool) -> str:
    """One answer with calls of tools with random parameters: as ``ask_json``."""
    schemas = {f"tool_{i}": random_schema(10_000 + 2 * seed + i) for i in range(2)}
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}
        for name, schema in schemas.items()
    ]
    named = {"type": "function", "function": {"name": "tool_1"}}
    tool_choice = named if is_named else "required"
    choice, problem = asked(api, seed, tools=tools, tool_choice=tool_choice)
    if choice is None:
        return problem
    if choice["finish_reason"] == "length":
        return "cut"
    if choice["finish_reason"] != ("stop" if is_named else "tool_calls"):
        return f"finish reason {choice['finish_reason']}"
    calls = choice["message"].get("tool_calls", [])
    if not calls or choice["message"]["content"] is not None:
        return "no calls, or text beside them"
    if is_named and [call["function"]["name"] for call in calls] != ["tool_1"]:
        return "not the named tool"
    found = [
        judged(call["function"]["arguments"], schemas[call["function"]["name"]]) for call in calls
    ]
    return next((outcome for outcome in found if outcome != "right"), "right")


def asked(api: Api, seed: int, **fields: Any) -> tuple[Json | None, str]:
    """The choice of a chat, or what the server said instead."""
    body = api.chat_body("Give me a JSON object.", temperature=1, seed=seed, **fields)
    reply = api.post(CHAT, body)
    if reply.status != 200:
        return None, f"{reply.status}: {reply.json['error']['message']}"
    return reply.json["choices"][0], ""


def judged(text: str, schema: Json) -> str:
    """Whether the text is JSON that satisfies the schema."""
    try:
        Draft202012Validator(schema, format_checker=CHECKER).validate(json.loads(text))
    except json.JSONDecodeError:
        return "no JSON"
    except ValidationError as error:
        return f"invalid: {error.message[:80]}"
    return "right"


# Overhead.

SHAPES: dict[str, Json] = {
    "qwen3-0.6b": {
        "vocab_size": 151_936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
    "tiny": {
        "vocab_size": 4096,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
    },
}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def overhead(shape: str, model: Path, dtype: str, num_turns: int) -> None:
    """Print the ratio of step times, constrained to free, turn by turn."""
    if not model.exists():
        make_model(SHAPES[shape], model)
    loaded = load_engine(
        ModelConfig(model=str(model), device="cpu", dtype=dtype),  # type: ignore[arg-type]
        EngineConfig(max_num_seqs=BATCH, max_model_len=1024, seed=0),
    )
    grammars = [json_schema(endless_schema(i)) for i in range(BATCH)]
    for grammar in grammars:
        loaded.grammar_compiler.check(grammar)
    free: list[Grammar | None] = [None] * BATCH
    step_times(loaded, free, seed=-1)  # warm-up
    step_times(loaded, grammars, seed=-1)
    ratios = []
    for turn in range(num_turns):
        first = statistics.median(step_times(loaded, free, seed=turn))
        second = statistics.median(step_times(loaded, grammars, seed=turn))
        ratios.append(second / first)
        print(
            f"turn {turn}: free {1000 * first:.2f} ms, constrained {1000 * second:.2f} ms, "
            f"ratio {second / first:.3f}",
            flush=True,
        )
    print(
        f"{shape}, {dtype}, batch {BATCH}, {torch.get_num_threads()} threads: constrained steps "
        f"take {statistics.median(ratios):.3f} times as long as free ones (median of turns; "
        f"{min(ratios):.3f} to {max(ratios):.3f})"
    )


def step_times(loaded: LoadedEngine, grammars: Iterable[Grammar | None], seed: int) -> list[float]:
    """Seconds of each step in which all sequences got one token."""
    rng = random.Random(seed)
    for i, grammar in enumerate(grammars):
        prompt = tuple(rng.randrange(300, 3000) for _ in range(PROMPT_TOKENS))
        params = SamplingParams(
            max_tokens=OUTPUT_TOKENS, seed=i, ignore_eos=grammar is None, grammar=grammar
        )
        loaded.engine.add(
            EngineRequest(request_id=f"{seed}-{i}", prompt_token_ids=prompt, params=params)
        )
    times = []
    counts: dict[str, int] = {}
    while loaded.engine.has_work:
        was_decoding = len(counts) == BATCH
        start = time.perf_counter()
        outputs = loaded.engine.step()
        took = time.perf_counter() - start
        for output in outputs:
            assert output.error is None, output.error
            counts[output.request_id] = output.num_output_tokens
        if was_decoding and len(outputs) == BATCH:
            times.append(took)
    assert set(counts.values()) == {OUTPUT_TOKENS}, "an answer ended early"
    return times


def endless_schema(number: int) -> Json:
    """A list of records that is too long to be ended; no two schemas are the same."""
    record: Json = {
        "type": "object",
        "properties": {
            f"name_{number}": {"type": "string"},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "email": {"type": "string", "pattern": r"^[a-z]{3,9}@[a-z]{3,9}\.(com|org)$"},
            "kind": {"enum": ["person", "robot", "cat"]},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 10}, "maxItems": 3},
            "place": {
                "type": "object",
                "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
                "required": ["x", "y"],
                "additionalProperties": False,
            },
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "additionalProperties": False,
    }
    record["required"] = list(record["properties"])
    return {"type": "array", "items": record, "minItems": 200}


def make_model(shape: Json, folder: Path) -> None:
    """Random weights in bfloat16, and a byte-level tokenizer with a token for every id."""
    torch.manual_seed(0)
    tokenizer = make_tokenizer(shape["vocab_size"])
    config = Qwen3Config(
        **shape,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_tokenizer(vocab_size: int) -> PreTrainedTokenizerFast:
    """Byte pairs of Python's own library, then pairs of words until there are enough tokens."""
    num_trained = min(16_000, vocab_size - len(SPECIAL))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=num_trained,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    tokenizer.train_from_iterator((s.read_text("utf-8", "ignore") for s in sources), trainer)
    state = json.loads(tokenizer.to_str())
    vocab, merges = state["model"]["vocab"], state["model"]["merges"]
    words = [token for token in vocab if len(token) > 1 and token.isascii() and token.isalpha()]
    pairs = ((head, tail) for head in words for tail in words)
    while len(vocab) < vocab_size - len(SPECIAL):
        head, tail = next(pairs)
        if head + tail not in vocab:
            vocab[head + tail] = len(vocab)
            merges.append([head, tail])
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_special_tokens(SPECIAL)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=SPECIAL[0], pad_token=SPECIAL[0], eos_token=SPECIAL[2]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("promises")
    command.add_argument("--count", type=int, default=100)
    command = commands.add_parser("overhead")
    command.add_argument("--shape", choices=SHAPES, default="qwen3-0.6b")
    command.add_argument("--model", type=Path)
    command.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    command.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    if options.command == "promises":
        sys.exit(not promises(options.count))
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or Path(folder) / "model"
        overhead(options.shape, model, options.dtype, options.turns)


if __name__ == "__main__":
    main()
