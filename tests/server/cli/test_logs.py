import json
import logging
import sys

import pytest

from server.cli.program import FORMAT, JsonFormatter, SafeFormatter


def line(message, *args, error=None, formatter=None):
    record = logging.LogRecord("a", logging.INFO, "", 0, message, args, None)
    if error is not None:
        try:
            raise error
        except type(error):
            record.exc_info = sys.exc_info()
    return (formatter or SafeFormatter(FORMAT)).format(record)


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


# JSON


def json_line(message, *args, error=None):
    text = line(message, *args, error=error, formatter=JsonFormatter())
    assert text.isascii()
    assert text.isprintable()
    return json.loads(text)


def test_a_record_is_an_object():
    found = json_line("%s é", "Hello")
    assert (found["level"], found["logger"], found["message"]) == ("info", "a", "Hello é")
    assert found["time"].endswith("+00:00")


@pytest.mark.parametrize("text", ["\n", "\x1b[2K", "\x85", "\u2028", "\0", '"', "\\"])
def test_any_text_stays_in_its_string(text):
    assert json_line("%s", f"x{text}y")["message"] == f"x{text}y"


def test_a_traceback_is_a_string():
    assert json_line("failed", error=ValueError("no"))["traceback"].endswith("ValueError: no")


def test_fields_of_a_message_stand_beside_the_others():
    class Message:
        def fields(self):
            return {"status": 200, "times_ms": {"queue": 1.5}}

    found = json_line(Message())
    assert (found["status"], found["times_ms"], found["logger"]) == (200, {"queue": 1.5}, "a")
    assert "message" not in found
