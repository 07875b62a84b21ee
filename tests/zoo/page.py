"""The page of documentation that lists what becomes of every family."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import transformers

from core.models.families import FAMILIES
from tests.zoo.check import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "models.md"

_ROWS = """
These families have a [row](architecture.md#decoder-families-are-data). On a CPU with the compiled
kernels the whole model is computed [in one call](operating.md#paths):

{families}
On a CPU every other family is computed by transformers' modules: slower, and without
`--quantization`. So is a model whose family has a row, if its `config.json` has a key or a value
that the row does not know.
"""

_INTRODUCTION = """\
# Models

roseinfer serves causal language models of transformers. It is tested with every family of
`AutoModelForCausalLM` in transformers {version}: a tiny model with random weights is loaded in
float32 on a CPU and serves several requests at once, with small chunks, past its window and on a
cached prefix. Every token is compared with `generate`.

`python -m tests.zoo --write` writes this page. `make test-zoo` checks it.

A family is in one of three states:

- **exact**: every token is that of `generate`.
- **refused** at load, with one line and exit code 2. The reason is given below.
- **not built**: transformers could not build or run a model of this size. Nothing is known here;
  the proof at load decides.

[The proof at load](architecture.md#the-assembled-engine-is-proved-at-load-time) is of the model
that is loaded: a checkpoint whose configuration differs from its family's default may be served
where the family is refused, or be refused where the family is exact.
{rows}
| state | families |
|---|---|
"""


def page(outcomes: Mapping[str, Outcome]) -> str:
    """The whole page, for outcomes by family."""
    by_state = {
        state: sorted(name for name, outcome in outcomes.items() if outcome.state == state)
        for state in ("exact", "refused", "not built")
    }
    version = transformers.__version__.rpartition(".")[0]
    text = _INTRODUCTION.format(version=version, rows=rows())
    text += "".join(f"| {state} | {len(names)} |\n" for state, names in by_state.items())
    text += "\n## Exact\n\n" + _wrapped([f"`{name}`" for name in by_state["exact"]])
    for state, title in (("refused", "Refused"), ("not built", "Not built")):
        text += f"\n## {title}\n\n| family | reason |\n|---|---|\n"
        for name in by_state[state]:
            text += f"| `{name}` | {plain(outcomes[name].reason)} |\n"
    return text


def rows() -> str:
    """What the page says of families with a row."""
    return _ROWS.format(families=_wrapped([f"`{family}`" for family in sorted(FAMILIES)]))


def plain(reason: str) -> str:
    """A reason without the class and the figures, which may differ between machines."""
    reason = re.sub(r"^\w+ cannot be served: ", "", reason)
    reason = re.sub(r" \(error .*\)$", "", reason)
    return reason.replace("|", "\\|").strip()


def states_on(text: str) -> dict[str, str]:
    """The state of each family that a page lists. A family may be there once."""
    states: dict[str, str] = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        names = re.findall(r"`([\w-]+)`", body) if title == "Exact" else _first_cells(body)
        for name in names:
            assert name not in states, f"{name} is listed twice"
            states[name] = title.lower()
    return states


def _first_cells(body: str) -> list[str]:
    return re.findall(r"^\| `([\w-]+)` \|", body, flags=re.MULTILINE)


def _wrapped(words: list[str], width: int = 118) -> str:
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) + 2 > width:
            lines.append("")
        lines[-1] += word + ", "
    return "\n".join(line.rstrip() for line in lines).rstrip(",") + "\n"
