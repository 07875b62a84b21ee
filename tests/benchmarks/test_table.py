"""Tables of the results of a comparison."""

from pathlib import Path

import pytest

from benchmarks.goals import BEGIN as GOALS
from benchmarks.goals import goals
from benchmarks.lines import read_lines
from benchmarks.results import Results, rounded
from benchmarks.table import (
    BEGIN,
    END,
    figures_table,
    put_into,
    ratios_table,
    streams_table,
    tables,
)

SESSION = {
    "kind": "session",
    "session": "2026-11-21T12:00:00Z",
    "command": "python -m benchmarks.compare --rounds 3",
    "machine": {
        "cpu": "Some CPU",
        "cpu_family": "25/1",
        "features": ["avx2", "fma"],
        "cores": 2,
        "memory_gib": 23.5,
        "system": "Linux",
        "python": "3.11.7",
    },
    "gemm_gflops": {"bfloat16": 12.0, "float32": 150.0},
    "contenders": {"roseinfer": "commit abc"},
}


PROBE = {"read_gbs": 30.0, "fma_gflops": 200.0}


def line(contender, scenario, **values):
    return {
        "kind": "run",
        "session": SESSION["session"],
        "contender": contender,
        "model": "gpt2",
        "scenario": scenario,
        "scale": 1.0,
        "weights": "bfloat16",
        "is_variant": contender == "roseinfer in process",
        "is_disturbed": False,
        "is_cut": False,
        "num_errors": 0,
        "start_s": 4.0,
        "probe": PROBE,
        "probes": [PROBE],
        "floors": {},
    } | values


LINES = [
    *(line("llama.cpp bf16", "s2", tok_s=v, rss_mb=3000) for v in (300, 500, 400)),
    *(
        line("roseinfer", "s2", tok_s=v, rss_mb=1000, floors={"tok_s": 1600})
        for v in (700, 800, 900)
    ),
    line("roseinfer in process", "s2", tok_s=1000, rss_mb=900, floors={"tok_s": 1600}),
    line("roseinfer", "s1", tpot_p50_ms=10, ttft_p50_ms=30, floors={"tpot_p50_ms": 8}),
    line("llama.cpp bf16", "s1", tpot_p50_ms=15, ttft_p50_ms=30),
]


def rows(table):
    return {
        cells[0]: cells[1:]
        for cells in ([c.strip() for c in row.split("|")[1:-1]] for row in table.splitlines())
    }


def column(table, contender):
    found = rows(table)
    place = found[""].index(contender)
    return {name: cells[place] for name, cells in found.items() if name != ""}


def test_cells_are_medians_with_their_share_of_the_limit():
    table = figures_table(Results(LINES))
    assert rows(table)[""] == [
        "roseinfer",
        "llama.cpp bf16",
        "roseinfer in process",
        "*limit, bfloat16*",
    ]
    ours = column(table, "roseinfer")
    assert ours["S2 tok/s"] == "800 (50%)"
    assert ours["S1 TPOT"] == "10.0 (80%)"
    assert ours["S1 TTFT"] == "30.0"
    assert ours["runs"] == "1 to 3"
    assert column(table, "llama.cpp bf16")["S2 tok/s"] == "400"
    limit = column(table, "*limit, bfloat16*")
    assert (limit["S2 tok/s"], limit["S1 TPOT"], limit["S1 TTFT"]) == ("1,600", "8.00", "-")


def test_a_share_compares_each_run_with_its_own_probe():
    runs = [
        line("roseinfer", "s1", tpot_p50_ms=10, floors={"tpot_p50_ms": 9}),
        line("roseinfer", "s1", tpot_p50_ms=20, floors={"tpot_p50_ms": 18}),
        line("roseinfer", "s1", tpot_p50_ms=30, floors={"tpot_p50_ms": 27}),
    ]
    assert column(figures_table(Results(runs)), "roseinfer")["S1 TPOT"] == "20.0 (90%)"


def test_a_share_has_the_range_of_the_probes_beside_the_run():
    floors = {"tpot_p50_ms": 8}

    def beside(*reads):
        return {
            "floors": floors,
            "floors_by_probe": [{"tpot_p50_ms": 8 * 30 / read} for read in reads],
            "probes": [{"read_gbs": read, "fma_gflops": 1} for read in reads],
        }

    steady = line("x", "s1", tpot_p50_ms=10, **beside(29, 31, 30))
    unsteady = line("y", "s1", tpot_p50_ms=10, **beside(25, 40, 30))
    table = figures_table(Results([steady, unsteady]))
    assert column(table, "x")["S1 TPOT"] == "10.0 (80%, 77-83)"
    assert column(table, "y")["S1 TPOT"] == "10.0 (80%!, 60-96)"
    assert "read bandwidth 30 (25 to 40) GB/s" in tables([SESSION, steady, unsteady])


def test_a_probe_during_which_the_server_was_busy_does_not_count():
    run = line(
        "x",
        "s1",
        tpot_p50_ms=10,
        tpot_each_ms=[10, 10, 10, 10],
        floors={"tpot_p50_ms": 8},
        floors_by_probe=[{"tpot_p50_ms": floor} for floor in (8, 9.5, 8, 8.2, 8)],
        is_busy_by_probe=[False, True, False, False, False],
    )
    assert column(figures_table(Results([run])), "x")["S1 TPOT"] == "10.0 (81%)"
    run["is_busy_by_probe"] = [False, True, True, True, False]
    assert column(figures_table(Results([run])), "x")["S1 TPOT"] == "10.0 (80%)"
    run["is_busy_by_probe"] = [True] * 5
    assert column(figures_table(Results([run])), "x")["S1 TPOT"] == "10.0 (80%!, 80-95)"


def test_memory_that_does_not_matter_makes_no_share_unsteady():
    run = line(
        "x",
        "s2",
        tok_s=80,
        floors={"tok_s": 100},
        floors_by_probe=[{"tok_s": 100}, {"tok_s": 100}],
        probes=[PROBE, PROBE | {"read_gbs": 60}],
    )
    assert column(figures_table(Results([run])), "x")["S2 tok/s"] == "80.0 (80%)"


def test_one_stream_counts_where_the_probes_around_a_request_agree():
    floors = [8, 8.2, 4.1, 4, 8]
    run = line(
        "x",
        "s1",
        tpot_p50_ms=9,
        tpot_each_ms=[9, 8, 5, 7],
        floors={"tpot_p50_ms": 8},
        floors_by_probe=[{"tpot_p50_ms": floor} for floor in floors],
        probes=[{"read_gbs": 240 / floor, "fma_gflops": 1} for floor in floors],
    )
    # 8.1 of 9 and 4.05 of 5; the memory changed in the second and in the last request
    assert column(figures_table(Results([run])), "x")["S1 TPOT"] == "9.00 (86%, 81-90)"
    one_of_three = run | {"tpot_each_ms": [9, 8, 5], "floors_by_probe": run["floors_by_probe"][1:]}
    assert column(figures_table(Results([one_of_three])), "x")["S1 TPOT"] == "9.00 (89%!, 44-91)"
    run["floors_by_probe"] = run["floors_by_probe"][:4]  # there is none after a cut run
    assert column(figures_table(Results([run])), "x")["S1 TPOT"] == "9.00 (89%!, 44-91)"


def test_a_ratio_above_one_is_better_for_rates_times_and_memory():
    found = rows(ratios_table(Results(LINES), "roseinfer", ["llama.cpp bf16"]))
    assert found["S2 tok/s"] == ["2.00x"]
    assert found["S1 TPOT"] == ["1.50x"]
    assert found["S2 resident MB"] == ["3.00x"]


def test_a_ratio_of_turns_with_other_memory_is_marked():
    def ours_beside(read, **values):
        peer = line("x", "s2", tok_s=400, probe=PROBE | {"read_gbs": read}, **values)
        return rows(ratios_table(Results([*LINES, peer]), "roseinfer", ["x"]))["S2 tok/s"]

    assert ours_beside(27.5) == ["2.00x"]
    assert ours_beside(27) == ["≈2.00x"]
    assert ours_beside(34) == ["≈2.00x"]
    assert ours_beside(34, is_cut=True) == ["~≈2.00x"]
    many = [
        line("roseinfer", "streams-8", tok_s=90),
        line("x", "streams-8", tok_s=60, probe=PROBE | {"read_gbs": 40}),
    ]
    found = rows(streams_table(Results(many)))
    assert found["roseinfer against the best"] == ["≈1.50x (x)"]


def test_rates_of_products_in_registers_are_those_of_the_probes_that_have_them():
    newer = [PROBE | {"products": {"bfloat16": rate, "int8": 2 * rate}} for rate in (470, 460, 465)]
    runs = [line("x", "s2", tok_s=1), line("x", "s2", tok_s=1, probes=newer)]
    shown = "; products in registers: bfloat16 465 (460 to 470), int8 930 (920 to 940) GFLOP/s; "
    assert shown in tables([SESSION, *runs])
    assert "registers" not in tables([SESSION, runs[0]])


def test_a_peer_without_tokens_has_no_ratio():
    runs = [*LINES, line("x", "s2", tok_s=0, is_cut=True)]
    found = rows(ratios_table(Results(runs), "roseinfer", ["llama.cpp bf16", "x"]))
    assert found["S2 tok/s"] == ["2.00x", "-"]
    assert ratios_table(Results(runs), "roseinfer", ["x"]) == ""


def test_quantized_weights_are_compared_with_quantized_weights():
    quantised = [
        line("roseinfer int8", "s1", tpot_p50_ms=5, weights="int8", floors={"tpot_p50_ms": 4}),
        line("llama.cpp q8_0", "s1", tpot_p50_ms=10, weights="q8_0"),
    ]
    text = tables([*LINES, *quantised])
    assert "| roseinfer against | llama.cpp bf16 |" in text
    assert "| roseinfer int8 against | llama.cpp q8_0 |" in text
    assert "| S1 TPOT | 2.00x |" in text
    assert "int8 against" not in tables(LINES)


def test_rates_by_streams_have_a_table_with_the_best_peer():
    runs = [
        line("roseinfer", "streams-1", tok_s=90, floors={"tok_s": 100}),
        line("roseinfer", "streams-64", tok_s=1000, floors={"tok_s": 2000}),
        line("llama.cpp bf16", "streams-64", tok_s=400),
        line("vLLM", "streams-64", tok_s=800),
        line("llama.cpp q8_0", "streams-64", tok_s=5000, weights="q8_0", is_variant=True),
    ]
    found = rows(streams_table(Results(runs)))
    assert found["tok/s by streams"] == ["1", "64"]
    assert found["roseinfer"] == ["90.0 (90%)", "1,000 (50%)"]
    assert found["vLLM"] == ["-", "800"]
    assert found["roseinfer against the best"] == ["-", "1.25x (vLLM)"]
    assert streams_table(Results(LINES)) == ""


def test_disturbed_runs_count_only_without_undisturbed_ones():
    runs = [
        line("roseinfer", "s2", tok_s=100, is_disturbed=True),
        line("roseinfer", "s2", tok_s=200),
        line("x", "s2", tok_s=50, is_disturbed=True),
    ]
    table = figures_table(Results(runs))
    assert column(table, "roseinfer")["S2 tok/s"] == "200"
    assert column(table, "x")["S2 tok/s"] == "50.0\\*"


def test_figures_of_cut_runs_have_a_tilde():
    table = figures_table(Results([line("x", "s3", tok_s=50, is_cut=True)]))
    assert column(table, "x")["S3 tok/s"] == "~50.0"


def test_runs_with_errors_do_not_count():
    runs = [line("x", "s2", tok_s=50, num_errors=3), line("x", "s2", tok_s=60)]
    assert column(figures_table(Results(runs)), "x")["S2 tok/s"] == "60.0"


def test_a_document_has_machine_versions_tables_and_messages():
    failure = {"kind": "failure", "model": "gpt2", "contender": "vLLM", "message": "exited with 1"}
    warning = failure | {"kind": "warning", "message": "no kernels"}
    text = tables([SESSION, *LINES, failure, warning, warning])
    assert text.count("vLLM warned: no kernels") == 1
    assert "Some CPU (family/model 25/1; avx2, fma), 2 cores, 23.5 GiB" in text
    assert "read bandwidth 30 (30 to 30) GB/s" in text
    assert "- roseinfer: commit abc" in text
    assert "python -m benchmarks.compare --rounds 3" in text
    assert "HTTP and its client cost 20.0% of the engine's rate in S2." in text
    assert "gpt2: vLLM did not run: exited with 1" in text
    assert "### gpt2 (avx2, fma; 2 cores)\n" in text
    scaled = tables([line("x", "s1", tpot_p50_ms=1, scale=0.25)])
    assert "### gpt2, 0.25 of the work" in scaled


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.01234, "0.0123"), (1.2345, "1.23"), (12.345, "12.3"), (12345.6, "12,346")],
)
def test_three_significant_digits(value, shown):
    assert rounded(value) == shown


def test_only_the_text_between_the_marks_is_replaced():
    document = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert put_into(document, "new\n") == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert put_into(put_into(document, "new"), "new") == put_into(document, "new")
    with pytest.raises(ValueError, match="has no"):
        put_into("nothing", "new")


def test_a_run_that_was_cut_after_its_first_request_marks_only_the_others():
    figures = {"first_ttft_ms": 900, "first_tpot_ms": 20, "tpot_p50_ms": 80, "tok_s": 90}
    runs = [
        line("roseinfer", "context-8k", first_is_cut=False, **figures),
        line("vLLM", "context-8k", is_cut=True, first_is_cut=False, **figures),
        line("slow", "context-8k", is_cut=True, first_is_cut=True, first_ttft_ms=3000, tok_s=None),
    ]
    found = rows(figures_table(Results(runs)))
    assert found["Context of 8k: TTFT"][:3] == ["900", "900", "~3,000"]
    assert found["Context of 8k: TPOT"][:3] == ["20.0", "20.0", "-"]
    assert found["Context of 8k: 8 streams, TPOT"][:3] == ["80.0", "~80.0", "-"]
    assert found["Context of 8k: 8 streams, tok/s"][:3] == ["90.0", "~90.0", "-"]


def test_machines_with_other_features_have_their_own_tables():
    other = SESSION | {
        "session": "later",
        "machine": SESSION["machine"] | {"features": ["avx512f"]},
    }
    runs = [line("roseinfer", "s2", tok_s=9999, session="later")]
    text = tables([SESSION, *LINES, other, *runs])
    assert "### gpt2 (avx2, fma; 2 cores)\n" in text
    assert "### gpt2 (avx512f; 2 cores)\n" in text
    assert "| S2 tok/s | 800 (50%) |" in text


def test_machines_stand_side_by_side_with_the_share_of_their_limits():
    machine = SESSION["machine"] | {"features": ["avx512f"]}
    other = SESSION | {"session": "later", "machine": machine}
    runs = [
        line("roseinfer", "s2", tok_s=9000, floors={"tok_s": 10_000}, session="later", scale=0.5),
        line("vLLM", "s2", tok_s=6000, session="later", scale=0.5),
    ]
    text = tables([SESSION, *LINES, other, *runs])
    found = rows(text.partition("### Machines side by side\n\n")[2])
    assert found["gpt2"] == ["avx2, fma; 2 cores", "avx512f; 2 cores, 0.5 of the work"]
    assert found["S2 tok/s"] == ["800 (50%), 2.00x llama.cpp bf16", "9,000 (90%), 1.50x vLLM"]
    assert found["S1 TPOT"] == ["10.0 (80%), 1.50x llama.cpp bf16", "-"]
    assert "side by side" not in tables([SESSION, *LINES])


def test_slices_of_one_comparison_have_one_preface():
    second = SESSION | {"session": "2026-11-21T12:10:00Z"}
    runs = [line("roseinfer", "s2", tok_s=1, session=second["session"])]
    text = tables([SESSION, *LINES, second, *runs])
    assert "**2026-11-21T12:00:00Z, 2026-11-21T12:10:00Z** on Some CPU" in text
    assert text.count("python -m benchmarks.compare") == 1


def test_the_committed_tables_are_those_of_the_committed_results():
    folder = Path(__file__).parents[2] / "benchmarks"
    document = (folder / "RESULTS.md").read_text("utf-8")
    lines = read_lines([folder / "results.jsonl"])
    assert put_into(put_into(document, tables(lines)), goals(lines), GOALS) == document
