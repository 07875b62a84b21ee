"""The benchmark of a start reads what a server logs."""

from benchmarks.start_server import Starting
from core.observe.stages import Stages


def test_the_stages_of_the_log_are_found(tmp_path):
    stages = Stages()
    stages.end("imports")
    stages.end("warm-up")
    log = tmp_path / "log"
    log.write_text(f"Listening on ...\n12:00 INFO loaded in {stages}\nServing ...\n")
    found = Starting(lambda port: [str(port)], log).stages()
    assert list(found) == ["imports", "warm-up"]
    assert all(seconds >= 0 for seconds in found.values())
