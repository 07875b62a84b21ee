from benchmarks.gpu_table import BEGIN, END, put_into, section

ROWS = [
    {"part": "machine", "at": 0.0, "name": "limits", "device": "some GPU", "copy_gbs": 3012.4},
    {"part": "texts", "at": 1.0, "name": "small pool", "ok": False, "equal": "3 of 12"},
    {"part": "texts", "at": 2.0, "name": "small pool", "ok": True, "equal": "12 of 12"},
    {"part": "large", "at": 3.0, "name": "c8", "ok": True, "tok_s": 1234.5, "itl_p50_ms": 6.512},
    {"part": "large", "at": 4.0, "name": "c32", "skipped": "no time"},
    {"part": "large", "at": 5.0, "name": "large took", "seconds": 3.0},
    {"part": "large", "at": 6.0, "name": "large", "ok": False, "says": "not finished after 9 s"},
]


def test_repeated_measurements_count_once_and_failures_are_listed():
    assert section(ROWS).splitlines() == [
        "**1970-01-01**, device some GPU, copy_gbs 3,012",
        "",
        "Failed: large: large.",
        "",
        "### texts",
        "",
        "- small pool: equal 12 of 12",
        "",
        "### large",
        "",
        "| | tok/s | gap p50 |",
        "| --- | --: | --: |",
        "| c8 | 1,234 | 6.51 |",
        "| c32 | skipped no time |  |",
        "| large **failed** | says not finished after 9 s |  |",
    ]


def test_a_section_without_rows():
    assert section([]) == "No results."


def test_a_section_replaces_the_previous_one():
    first = put_into("# Results\n\nA.\n", "one")
    assert first == f"# Results\n\nA.\n\n{BEGIN}\n\none\n\n{END}\n"
    assert put_into(first + "\nB.\n", "two") == first.replace("one", "two") + "\nB.\n"
