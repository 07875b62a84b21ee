from benchmarks.observing import compare, figures_in

STEPS = "   1 rows: 0.250 ms per step\n  64 rows: 1.500 ms per step\n"
CPU = """chat, 32 streams, a step every 10.0 ms
  loop CPU per token, µs                        30.25
  loop wake-ups per step                         1.02
  core CPU per token, text only, µs              4.10
  core CPU per token, all of the thread, µs      5.55
"""


def test_figures_are_found_in_the_output_of_the_commands():
    assert figures_in(STEPS) == {"step of 1 rows, host": 250.0, "step of 64 rows, host": 1500.0}
    assert figures_in(CPU) == {
        "loop CPU per token": 30.25,
        "core CPU per token, text only": 4.1,
        "core CPU per token, all of the thread": 5.55,
    }
    assert figures_in("Traceback") == {}


def test_the_least_values_are_compared():
    lines = compare([{"a": 10.0}, {"a": 12.0}], [{"a": 13.0}, {"a": 11.0}])
    assert lines[1].split() == ["a", "10.00", "11.00", "1.00", "1.100"]
