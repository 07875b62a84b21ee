"""torch without what it knows about tensors without memory, and with it when that is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from core.system import torch_import
from tests.support.checkpoints import tiny_model

BEGIN = """
import sys
from core.system import torch_import
torch_import.leave_out()
import torch
from core.module.modelling_import import import_modelling
from core.module.on_meta import QuickOnMeta
assert "torch._decomp" not in sys.modules
"""

ASKS = {
    "an operation on meta": """
x = torch.empty(1, 3, 8, 8, device="meta")
with QuickOnMeta():
    print(*torch.nn.functional.grid_sample(x, torch.empty(1, 4, 4, 2, device="meta")).shape)
print(*torch.nn.functional.grid_sample(x, torch.empty(1, 4, 4, 2, device="meta")).shape)
""",
    "a name of the module": """
from torch._meta_registrations import meta_index_Tensor
print(1, 3, 4, 4)
print(*torch.empty(1, 3, 4, 4, device="meta")[:, :, torch.arange(4)].shape)
""",
    "an attribute of torch": """
print(*torch.broadcast_shapes((1, 3, 1, 4), (4, 1)), *torch._decomp.__all__[:0])
print(*torch.empty(1, 3, 4, 4, device="meta")[:, :, torch.arange(4)].shape)
""",
    "a part that it imports, by itself": """
import torch._refs
print(*torch._refs._broadcast_shapes((1, 3, 1, 4), (4, 1)))
with QuickOnMeta():
    print(*torch.empty(1, 3, 4, 4, device="meta")[:, :, torch.arange(4)].shape)
""",
    "the compiler": """
import_modelling()
double = torch.compile(lambda x: torch.cat([x] * 4, dim=2), backend="eager")
for _ in range(2):
    print(*double(torch.ones(1, 3, 1, 4)).shape)
""",
}


def run(program: str) -> list[str]:
    """The words that a program in a new interpreter prints."""
    done = subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-W", "ignore", "-c", BEGIN + program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("ask", ASKS)
def test_what_was_left_out_is_there_when_it_is_asked_for(ask: str) -> None:
    assert run(ASKS[ask] + 'print("torch._decomp" in sys.modules)') == [*"13441344", "True"]


THREADS = """
import threading
failed = [threading.Event(), threading.Event()]
def sample(number):
    x, grid = torch.empty(1, 3, 8, 8, device="meta"), torch.empty(1, 4, 4, 2, device="meta")
    try:
        return torch.nn.functional.grid_sample(x, grid)
    except NotImplementedError:
        failed[number].set()
        wait(number)
        raise
def ask(number):
    found.extend(torch_import.restored_if_needed(sample, number).shape)
found = []
threads = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
"""


def test_two_threads_that_need_it_at_once_both_get_it() -> None:
    program = """
def wait(number):
    failed[1 - number].wait()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(*found)
"""
    assert run(THREADS + program) == ["1", "3", "4", "4"] * 2


def test_a_thread_that_needs_it_while_another_imports_it_waits() -> None:
    program = """
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "torch._meta_registrations" and not failed[1].is_set():
            threads[1].start()
            failed[1].wait()
def wait(number):
    pass
sys.meta_path.insert(0, Finder())
threads[0].start()
for thread in threads:
    thread.join()
print(*found)
"""
    assert run(THREADS + program) == ["1", "3", "4", "4"] * 2


def test_an_operation_that_torch_does_not_know_is_still_refused() -> None:
    program = """
with QuickOnMeta():
    try:
        torch.nonzero(torch.empty(3, device="meta"))
    except NotImplementedError:
        print("refused")
"""
    assert run(program) == ["refused"]


def test_a_plain_checkpoint_needs_none_of_it(tmp_path) -> None:
    tiny_model("qwen3").save_pretrained(tmp_path)
    program = """
from core.contract.config import ModelConfig
from core.module.loader import load_model
"""
    program += f'load_model(ModelConfig(model={str(tmp_path)!r}, device="cpu"))\n'
    assert run(program + 'print("torch._decomp" in sys.modules)') == ["False"]


def test_random_generators_work_before_and_after() -> None:
    program = """
draw = lambda: torch.randn(2, generator=torch.Generator().manual_seed(0)).tolist()
before = draw()
torch_import.restore()
print(before == draw(), isinstance(torch.Generator(), torch.Generator))
"""
    assert run(program) == ["True", "True"]


def test_it_is_left_alone_where_torch_is_imported() -> None:
    before = sys.modules["torch._meta_registrations"]
    torch_import.leave_out()
    assert sys.modules["torch._meta_registrations"] is before
    assert not torch_import.restore()
