import resource
import subprocess
import sys

import pytest

from server.connections.descriptors import RESERVE, connection_limit
from server.connections.gate import NUM_SPARE
from tests.support.source_tree import ROOT

RAISE = """
import resource
from server.connections.descriptors import raise_descriptor_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 200))
print(raise_descriptor_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("descriptors", "limit"),
    [(None, 4096), (10**6, 4096), (1024, 1024 - RESERVE - NUM_SPARE), (20, 8)],
)
def test_connections_leave_descriptors_for_the_rest(descriptors, limit):
    assert connection_limit(4096, descriptors) == limit


def test_the_soft_limit_is_raised_to_the_hard_one():
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 200
    done = subprocess.run(  # noqa: S603 - this repository's own code
        [sys.executable, "-c", RAISE], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["200", "200", "200"]


def test_connections_that_take_two_descriptors_are_half_as_many():
    assert connection_limit(4096, 1024, each=2) == (1024 - RESERVE - NUM_SPARE) // 2
    assert connection_limit(100, 1024, each=2) == 100
