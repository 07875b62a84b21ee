"""The comparison of two source trees."""

import json
import sys

import pytest

from benchmarks import alternate

SCRIPT = """
import json, pathlib, sys
tree = pathlib.Path.cwd()
flags = sys.argv[1:]
with (tree.parent / "calls").open("a") as calls:
    calls.write(json.dumps([tree.name, flags]) + "\\n")
speed = float((tree / "speed").read_text())
client = {"output_tok_s": 100 * speed}
for name in ("tpot_ms", "ttft_ms", "itl_ms"):
    client[name] = {"p50": 10 / speed, "p99": 20 / speed}
pathlib.Path(flags[-1]).write_text(json.dumps({"median": {"client": client}}))
"""


@pytest.fixture
def python(tmp_path):
    """An interpreter that runs SCRIPT instead of the given module."""
    file = tmp_path / "python"
    file.write_text(f"#!{sys.executable}\n{SCRIPT}")
    file.chmod(0o700)
    return str(file)


@pytest.fixture
def trees(tmp_path):
    for name, speed in (("old", 1), ("new", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "speed").write_text(str(speed))
    return [tmp_path / "old", tmp_path / "new"]


def test_trees_take_turns_in_alternating_order(python, trees, tmp_path, capsys):
    alternate.take_turns(python, trees, 2, ["--random-model", "tiny"])
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert [tree for tree, _ in calls] == ["old", "new"] * 2 + ["new", "old"] * 2
    assert calls[0][1][:5] == ["-m", "server", "bench", "--random-model", "tiny"]
    assert "--submit-interval-ms" in calls[2][1]
    assert capsys.readouterr().out.count("round 2 s2") == 2


def test_a_ratio_above_one_means_that_the_second_tree_is_better(python, trees):
    _, *lines = alternate.compare(alternate.take_turns(python, trees, 1, []))
    assert len(lines) == len(alternate.FIGURES)
    assert all(line.endswith("2.000   2.000 to 2.000") for line in lines)
    assert " ".join(lines[0].split()) == "S1 TPOT p50, ms 10.0 5.00 2.000 2.000 to 2.000"


def test_a_benchmark_that_fails_raises_with_its_output(python, trees):
    (trees[0] / "speed").write_text("slow")
    with pytest.raises(RuntimeError, match="could not convert string to float: 'slow'"):
        alternate.run_bench(python, trees[0], "s1", [])
