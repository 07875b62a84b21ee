import gc
import subprocess
import sys

import pytest

from server.process import heap
from tests.support.source_tree import ROOT


def test_start_up_collects_rarely_and_its_objects_are_frozen():
    usual = gc.get_threshold()
    heap.collect_rarely()
    assert gc.get_threshold()[0] == heap.START_THRESHOLD
    made_in_start_up = [[] for _ in range(1000)]
    num_frozen = gc.get_freeze_count()
    heap.freeze()
    assert gc.get_threshold() == usual
    assert gc.get_freeze_count() >= num_frozen + len(made_in_start_up)


@pytest.mark.parametrize(
    ("set_up", "is_usual"),
    [
        ("run_route(parse_command(['route', '--config', '/nonexistent']))", True),
        ("set_up('info')", True),
        ("set_up_server(parse_command(['serve']))", False),
    ],
)
def test_only_who_freezes_later_collects_rarely(set_up, is_usual):
    """A router never does: what it drops in cycles would stay."""
    program = f"""
import gc
from server.cli.main import parse_command, run_route, set_up, set_up_server
usual = gc.get_threshold()
{set_up}
print(gc.get_threshold() == usual)
"""
    done = subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(is_usual)]
