"""`roseinfer serve` on a terminal: a progress bar with whole log lines above it, then one table."""

import signal

from compat_tests.support.terminal import Terminal


def test_a_start_shows_its_progress_and_ends_in_a_table() -> None:
    with Terminal("serve", "--port", "0", "--api-key", "k", "--threads", "1") as terminal:
        terminal.wait_for("Listening on http://127.0.0.1:")
        table = terminal.wait_for("Try:  curl", timeout=120)
        rows = dict(
            line.strip().split(maxsplit=1) for line in table.splitlines() if len(line.split()) > 1
        )
        assert "warming up" in table or "loading weights" in table
        assert rows["model"] == "roseinfer-tiny"
        assert rows["dtype"] == "float32 on cpu"
        assert rows["context"] == "2,048 tokens"
        assert rows["cache"].endswith(" tokens")
        assert rows["threads"] == "1"
        assert rows["URL"].startswith("http://127.0.0.1:")
        assert rows["URL"].endswith("/v1")
        assert rows["keys"] == "1 given"
        assert rows["page"] == rows["URL"].removesuffix("v1")
        assert "Serving roseinfer-tiny" not in terminal.shown
        logged = [line for line in terminal.lines if "roseinfer.core" in line]
        assert any("loaded in" in line for line in logged)
        assert all(line.lstrip("\r").startswith("20") for line in logged), logged
        assert not any("loading weights" in line for line in terminal.lines)  # the bar is gone
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.wait_exit() == 0


def test_a_failed_start_on_a_terminal_is_one_line(tmp_path) -> None:
    with Terminal("serve", str(tmp_path), "--port", "0", "--log-level", "error") as terminal:
        assert terminal.wait_exit(120) == 2
        lines = [line for line in terminal.shown.splitlines() if line.startswith("roseinfer: ")]
        assert len(lines) == 1
        assert "Traceback" not in terminal.shown
