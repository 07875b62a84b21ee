r"""Us and our peers under the same loads, in turn, on this machine.

    python -m benchmarks.compare --models gpt2 --rounds 3 \
        --llama-server PATH --gguf DIR [--llama-tree DIR] \
        --transformers-bin PATH --vllm-bin PATH --out results.jsonl
    python -m benchmarks.table results.jsonl --into benchmarks/RESULTS.md

Each round gives every contender one turn: wait for a quiet machine, probe its memory, start the
server, ask it one short request, run every scenario (``benchmarks/scenarios.py``), stop it. Every
other round goes in the opposite order. The model is a random one of a known shape, the same
directory for all; ``benchmarks/peers.md`` tells how to get the peers.

A run in which others used more than ``--max-other`` percent of a core is marked disturbed, and
repeated up to ``--retries`` times. A run that takes longer than ``--limit`` seconds is cut, and
its rate is that of the time until then; a slow server so costs no more than that. ``--scale`` makes
every scenario smaller (results say so). Quantised variants and the engine without HTTP are side
shows: they run ``--side-scenarios`` only. Every run is a line of ``--out``, which is appended to.

Let nothing else run meanwhile: a compute thread that waits for one that has lost its core makes a
server two to four times slower than the loss.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.random_model import cached_random_model
from benchmarks import host
from benchmarks.floors import floors
from benchmarks.limits import Rates, machine_of, probe
from benchmarks.peers import (
    BenchModel,
    Contender,
    LlamaServer,
    Roseinfer,
    TransformersServe,
    Vllm,
    cost_of,
)
from benchmarks.running import DidNotStart, Running, running
from benchmarks.scenarios import DEFAULT, WARM_UP, scenarios
from benchmarks.shapes import shape_of

ROOT = Path(__file__).resolve().parent.parent

CONVERT = Path(__file__).with_name("to_gguf.py")

GGUF_KINDS = ("bf16", "q8_0")

ABORT_TIMEOUT = 5.0
"""Seconds that a server gets to notice that those who asked are gone."""

SHOWN = {
    "s1": ("ttft_p50_ms", "tpot_p50_ms"),
    "s2": ("tok_s", "ttft_p99_ms", "tpot_p50_ms", "rss_mb"),
    "s3": ("tok_s", "ttft_p50_ms", "tpot_p50_ms"),
    "s4": ("tok_s", "ttft_p50_ms", "ttft_p99_ms"),
    "s5": ("long_ttft_ms", "gap_quiet_p50_ms", "gap_max_ms"),
}


@dataclass(kw_only=True)
class Session:
    """One call of the program: what it measures, how, and where the lines go."""

    options: argparse.Namespace
    gemm: dict[str, float]
    started: float = field(default_factory=time.monotonic)
    name: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    turns: dict[tuple[str, str], float] = field(default_factory=dict)
    """Seconds that a contender's last turn with a model took."""

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def write(self, kind: str, **values: Any) -> None:
        """Append a line."""
        line = {"kind": kind, "session": self.name, **values}
        with self.options.out.open("a", encoding="utf-8") as out:
            out.write(json.dumps(_finite(line)) + "\n")

    def has_time_for(self, contender: Contender, model: BenchModel) -> bool:
        """Whether a turn as long as the last would end before ``--max-minutes``."""
        likely = self.turns.get((contender.name, model.name), 0.0)
        return self.elapsed + likely <= 60 * float(self.options.max_minutes)


def main() -> None:
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, _leave)
    session = Session(options=options, gemm=_gemm_rates())
    models = [_bench_model(name, options) for name in options.models]
    contenders = find_contenders(options, session.gemm)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    session.write(
        "session",
        command=shlex.join(["python", "-m", "benchmarks.compare", *map(bare, sys.argv[1:])]),
        machine=host.describe(),
        gemm_gflops=session.gemm,
        scale=options.scale,
        limit_s=options.limit,
        contenders={contender.name: contender.versions() for contender in contenders},
    )
    print(f"{', '.join(c.name for c in contenders)}; {options.rounds} rounds", flush=True)
    with tempfile.TemporaryDirectory(prefix="roseinfer-compare-") as logs:
        for model in models:
            compare(session, model, contenders, Path(logs))
    print(f"{session.elapsed / 60:.1f} minutes; lines are in {options.out}")


def compare(session: Session, model: BenchModel, contenders: list[Contender], logs: Path) -> None:
    """All rounds with one model. One who cannot start has no further turns."""
    able = []
    for contender in contenders:
        lack = contender.missing(model)
        if lack is None:
            able.append(contender)
        else:
            print(f"{model.name}: {contender.name} is left out: {lack}", flush=True)
    for number in range(session.options.rounds):
        for contender in in_turn(able, number):
            if not session.has_time_for(contender, model):
                print(f"{model.name}: no time left for {contender.name} in round {number + 1}")
                continue
            start = time.monotonic()
            try:
                turn(session, contender, model, number, logs / "server.log")
            except DidNotStart as error:
                print(f"{model.name}: {contender.name}: {error}", flush=True)
                session.write(
                    "failure", contender=contender.name, model=model.name, message=bare(str(error))
                )
                able.remove(contender)
            session.turns[contender.name, model.name] = time.monotonic() - start


def in_turn(contenders: list[Contender], number: int) -> list[Contender]:
    """The order of a round: there and back, so that a machine that slowly changes favours none."""
    return contenders[::-1] if number % 2 else contenders[:]


def turn(session: Session, contender: Contender, model: BenchModel, number: int, log: Path) -> None:
    """One contender's scenarios of one round.

    A run that is cut may leave a server busy with what nobody waits for any more: if it does, the
    other scenarios get a new one.
    """
    options = session.options
    wanted = options.side_scenarios if contender.is_side_show else options.scenarios
    left = [name for name in options.scenarios if name in wanted]
    while left:
        host.wait_quiet(options.wait_quiet)
        rates = probe()
        start = time.monotonic()
        with running(contender, model, log) as server:
            server.wait_ready(options.start_timeout)
            start_s = time.monotonic() - start
            for warning in server.warnings():
                said = {"contender": contender.name, "model": model.name, "message": bare(warning)}
                session.write("warning", **said)
                print(f"{contender.name} warns: {warning}", flush=True)
            server.run(WARM_UP, scale=1.0, seed=_new_seed(), limit=options.limit)
            while left:
                before = {"round": number, "start_s": start_s, "probe": asdict(rates)}
                is_cut = measure(session, server, rates, left.pop(0), before)["is_cut"]
                if is_cut and left and not host.wait_quiet(ABORT_TIMEOUT):
                    break


def measure(
    session: Session, server: Running, rates: Rates, scenario: str, known: dict[str, Any]
) -> dict[str, Any]:
    """One run, again while others disturb it; the last one's line, with what is known before."""
    options, contender, model = session.options, server.contender, server.model
    floor = floors(
        scenarios(model.shape.max_model_len, options.scale)[scenario],
        cost_of(contender, model),
        machine_of(rates, session.gemm, contender.weights),
    )
    for attempt in range(options.retries + 1):
        is_quiet = host.wait_quiet(options.wait_quiet)
        before = host.usage(server.pid)
        found = server.run(scenario, scale=options.scale, seed=_new_seed(), limit=options.limit)
        beside = host.between(before, host.usage(server.pid))
        is_disturbed = beside["other_cpu_pct"] + beside["steal_pct"] > options.max_other
        line = {
            "contender": contender.name,
            "model": model.name,
            "scenario": scenario,
            "scale": options.scale,
            "attempt": attempt,
            "was_quiet": is_quiet,
            "is_disturbed": is_disturbed,
            "is_side_show": contender.is_side_show,
            "weights": contender.weights,
            "floors": floor,
            **known,
            **found,
            **beside,
        }
        session.write("run", **line)
        print(_told(line), flush=True)
        if not is_disturbed or found["is_cut"]:
            break
    return line


def find_contenders(options: argparse.Namespace, gemm: dict[str, float]) -> list[Contender]:
    """Us, and the peers that are named or lie on the path; then the side shows."""
    found: list[Contender] = [Roseinfer(dtype=options.dtype)]
    llama = options.llama_server or _on_path("llama-server")
    vllm = options.vllm_bin or _on_path("vllm")
    if llama is not None:
        found.append(LlamaServer(program=llama))
    if vllm is not None:
        found.append(Vllm(program=vllm))
    if options.transformers_bin is not None:
        dtype = options.transformers_dtype
        if dtype == "auto":  # where a processor has no bfloat16, its products are very slow in it
            dtype = max(("bfloat16", "float32"), key=lambda name: gemm.get(name, 0.0))
        found.append(TransformersServe(program=options.transformers_bin, dtype=dtype))
    found += [
        Roseinfer(dtype=options.dtype, quantization="int8"),
        Roseinfer(dtype=options.dtype, is_in_process=True),
    ]
    if llama is not None:
        found.append(LlamaServer(program=llama, kind="q8_0"))
    chosen = options.contenders
    return [c for c in found if not chosen or c.name in chosen]


def bare(text: str) -> str:
    """The text with its absolute paths cut to their names: results are read elsewhere."""
    return re.sub(r"(?<![\w./:])/(?:[^\s/:'\"]+/)+", "", text)


def _bench_model(name: str, options: argparse.Namespace) -> BenchModel:
    """A model by the name of its shape, or by its directory. Makes GGUF files that lack."""
    directory = Path(name) if (Path(name) / "config.json").is_file() else cached_random_model(name)
    model = BenchModel(
        name=Path(name).name, directory=directory, shape=shape_of(directory), gguf=options.gguf
    )
    if options.llama_tree is not None and options.gguf is not None:
        options.gguf.mkdir(parents=True, exist_ok=True)
        for kind in GGUF_KINDS:
            file = model.gguf_file(kind)
            if not file.is_file():
                python = options.convert_python or sys.executable
                print(f"making {file}", flush=True)
                command = [python, str(CONVERT), str(options.llama_tree), str(directory)]
                subprocess.run([*command, str(file), kind], check=True, capture_output=True)
    return model


def _gemm_rates() -> dict[str, float]:
    """What matrix products reach, measured by a process of its own: torch stays out of this one."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.limits", "--gemm"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    rates: dict[str, float] = json.loads(done.stdout)
    return rates


def _new_seed() -> str:
    """No two runs share prompts, so no prefix cache answers for another run."""
    return str(random.SystemRandom().getrandbits(64))


def _told(line: dict[str, Any]) -> str:
    """A run in one line."""
    marks = [name for name in ("disturbed", "cut") if line[f"is_{name}"]]
    if line["num_errors"]:
        marks.append(f"{line['num_errors']} ERRORS: {line['first_error']}")
    shown = []
    for figure in SHOWN.get(line["scenario"].partition("-")[0], ("tok_s",)):
        value, floor = line.get(figure, math.nan), line["floors"].get(figure)
        of = f" (floor {floor:.4g})" if floor else ""
        shown.append(f"{figure} {value:.4g}{of}")
    return (
        f"{line['model']} {line['round'] + 1} {line['contender']} {line['scenario']}: "
        f"{', '.join(shown)}; {line['wall_s']:.1f} s, server {line['server_cpu_pct']:.0f}% "
        f"client {line['client_cpu_pct']:.0f}% other {line['other_cpu_pct']:.0f}% "
        f"steal {line['steal_pct']:.0f}%, probe {line['probe']['read_gbs']:.0f} GB/s"
        f"{' ' + ' '.join(marks).upper() if marks else ''}"
    )


def _leave(_signal: int, _frame: object) -> None:
    """End as by an exception, so that no server is left behind."""
    sys.exit("compare: ended by a signal")


def _finite(value: Any) -> Any:
    """The same without NaN, which is no JSON."""
    match value:
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def _on_path(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None


def _names(text: str) -> list[str]:
    return list(_parts(text))


def _parts(text: str) -> Iterator[str]:
    yield from filter(None, (part.strip() for part in text.split(",")))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--models", type=_names, default=["gpt2", "qwen3-0.6b"], help="shapes or directories")
    add("--scenarios", type=_names, default=list(DEFAULT))
    add("--side-scenarios", type=_names, default=["s1", "s2"])
    add("--contenders", type=_names, help="only these, by the names that results use")
    add("--rounds", type=int, default=3)
    add("--scale", type=float, default=1.0, help="of the scenarios' work (default: all)")
    add("--limit", type=float, default=60.0, help="seconds after which a run is cut")
    add("--max-minutes", type=float, default=math.inf, help="begin no turn that would end later")
    add("--dtype", default="bfloat16", help="of our weights")
    add("--llama-server", type=Path, help="llama.cpp's server (default: on the path)")
    add("--gguf", type=Path, help="the folder of NAME-bf16.gguf and NAME-q8_0.gguf")
    add("--llama-tree", type=Path, help="llama.cpp's sources: makes the GGUF files that lack")
    add("--convert-python", help="an interpreter with torch, transformers and sentencepiece")
    add("--transformers-bin", type=Path, help="the program `transformers`")
    add("--transformers-dtype", default="auto", help="default: the type whose products are faster")
    add("--vllm-bin", type=Path, help="the program `vllm` (default: on the path)")
    add("--out", type=Path, default=Path("benchmarks/results.jsonl"))
    add("--wait-quiet", type=float, default=30.0, help="seconds to wait for a quiet machine")
    add("--max-other", type=float, default=12.0, help="percent of a core that others may use")
    add("--retries", type=int, default=1, help="times a disturbed run is repeated")
    add("--start-timeout", type=float, default=300.0, help="seconds a server gets to be ready")
    return parser


if __name__ == "__main__":
    main()
