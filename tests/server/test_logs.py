import logging
import sys

import pytest

from server.logs import FORMAT, SafeFormatter


def line(message, *args, error=None):
    record = logging.LogRecord("a", logging.INFO, "", 0, message, args, None)
    if error is not None:
        try:
            raise error
        except type(error):
            record.exc_info = sys.exc_info()
    return SafeFormatter(FORMAT).format(record)


def test_a_record_is_time_level_logger_message():
    assert line("%s é", "Hello").endswith(" INFO a: Hello é")


@pytest.mark.parametrize("text", ["\n", "\r", "\x1b[2K", "\x85", "\u2028", "\0", "\x7f", "\x9b"])
def test_control_characters_are_escaped(text):
    written = line("%s", f"x{text}2026-01-01 INFO roseinfer.access: forged")
    assert written.isprintable()
    assert "forged" in written


def test_no_line_of_a_traceback_begins_a_record():
    error = ValueError("x\n2026-01-01 INFO a: forged\x1b[2K")
    first, *rest = line("failed", error=error).split("\n")
    assert first.endswith(" INFO a: failed")
    assert all(text.startswith("  ") and text.isprintable() for text in rest)
    assert rest[0] == "  Traceback (most recent call last):"
    assert rest[-1].endswith("forged\\x1b[2K")
