"""A script that compiles the kernels without a GPU and prints their names and shared memory."""

import itertools
import json
import sys

import numpy as np
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from core.attention.triton import backend, device
from core.batch.model_input import ModelInput
from core.kernels.triton import quantised_linear
from core.kernels.triton.draw import draw_rows
from core.kv.layer_spec import LayerSpec
from core.kv.storage import KVStorage

SHARED_MEMORY = {80: 163 * 1024, 90: 227 * 1024}
"""Most bytes of shared memory per program, by compute capability."""


def compile_all(capability: int) -> list[tuple[str, int]]:
    """Return the names of the kernels and their bytes of shared memory."""

    class NoDriver:
        """Names the target only."""

        def get_current_target(self):
            return GPUTarget("cuda", capability, 32)

        def get_current_device(self):
            return 0

        def get_current_stream(self, _device=None):
            return 0

    compiled = []
    plain_run = JITFunction.run

    def compile_only(self, *args, warmup, **kwargs):
        kernel = plain_run(self, *args, warmup=True, **kwargs)
        assert kernel.asm["cubin"]
        compiled.append((self.fn.__name__, kernel.metadata.shared))

    driver.set_active(NoDriver())
    JITFunction.run = compile_only
    _attend(capability)
    _multiply(capability)
    _draw()
    return compiled


def _attend(capability: int) -> None:
    device.check_support = lambda *_: None
    device.launch_limits = lambda _: (SHARED_MEMORY[capability], 1000)

    float8 = torch.float8_e4m3fn if capability >= 90 else torch.bfloat16
    sinks = torch.zeros(6)
    for spec, dtype, cache_dtype in (
        (LayerSpec(32, 8, 128, 128, 0.1, None), torch.bfloat16, torch.bfloat16),
        (LayerSpec(6, 2, 80, 48, 0.1, 500), torch.bfloat16, float8),
        (LayerSpec(6, 2, 64, 64, 0.1, None, 50.0, sinks), torch.bfloat16, torch.bfloat16),
        (LayerSpec(6, 2, 80, 48, 0.1, 500, 50.0, sinks), torch.bfloat16, float8),
    ):
        storage = KVStorage(
            [spec], num_blocks=20, block_size=16, dtype=cache_dtype, device=torch.device("cpu")
        )
        over = backend.TritonBackend(storage, [spec], dtype=dtype)
        batch = ModelInput(
            token_ids=torch.empty(0),
            positions=torch.empty(0),
            slots=torch.zeros(20, dtype=torch.int64),
            logits_indices=torch.empty(0),
            query_starts=np.array([0, 1, 20]),
            context_lens=np.array([300, 50]),
            block_tables=np.zeros((2, 19), dtype=np.int64),
        )
        over.plan(batch)
        over.forward(
            torch.zeros(20, spec.num_heads, spec.head_dim, dtype=dtype),
            torch.zeros(20, spec.num_kv_heads, spec.head_dim, dtype=dtype),
            torch.zeros(20, spec.num_kv_heads, spec.value_dim, dtype=dtype),
            0,
        )


def _multiply(capability: int) -> None:
    formats = (torch.int8, torch.float8_e4m3fn) if capability >= 89 else (torch.int8,)
    cases = [
        *((torch.bfloat16, num_rows, 4096, 4096) for num_rows in (1, 17, 64, 130)),
        (torch.float16, 1, 33, 100),
        (torch.float32, 130, 33, 100),
        (torch.float32, 130, 4096, 4096),
    ]
    for fmt, (dtype, num_rows, num_outputs, size) in itertools.product(formats, cases):
        quantised_linear.quantised_linear(
            torch.zeros(num_rows, size, dtype=dtype),
            torch.zeros(num_outputs, size, dtype=fmt),
            torch.zeros(num_outputs),
            torch.zeros(num_outputs, dtype=dtype),
            torch.zeros(200, dtype=torch.int32),
        )


def _draw() -> None:
    filters, bits = torch.ones(4, 3, dtype=torch.float64), torch.zeros(3, dtype=torch.int64)
    for dtype in (torch.bfloat16, torch.float32):
        draw_rows(torch.zeros(3, 50257, dtype=dtype), filters, bits)


if __name__ == "__main__":
    print(json.dumps(compile_all(int(sys.argv[1]))))  # noqa: T201 - read by the test
