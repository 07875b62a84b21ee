"""The router's process."""

import subprocess
import sys

PROGRAM = """
import gc, os
from server.router import run
from server.router.config.settings import RouteSettings
from server.settings.settings import Settings

def announce_ready(_server):
    start = len(gc.get_objects())
    print(gc.get_freeze_count() > 10 * start, flush=True)
    os._exit(0)

run._Router.announce_ready = announce_ready
run.run(RouteSettings(config={path!r}, server=Settings(port=0)))
"""


def test_what_a_router_has_imported_is_in_no_collection_of_garbage(tmp_path):
    path = tmp_path / "models.toml"
    path.write_text('[models.a]\nurl = "unix:/nonexistent"\n')
    done = subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-c", PROGRAM.format(path=str(path))],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.splitlines()[-1:] == ["True"], done.stdout + done.stderr
