"""CompiledExecutor: a whole decoder in one call of the compiled kernels.

Between token ids and logits a step has one call without Python: embeddings, all layers with their
attention over the paged KV cache, the last norm, and the head or the argmax of its logits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from ctypes import c_int64, c_void_p
from functools import partial

from core.attention.base import AttentionBackend, KernelBackend
from core.contract.errors import ModelLoadError
from core.executors.angles import AngleTable
from core.executors.buffers import LogitsBuffer
from core.executors.layer_calls import Calls, angles_of
from core.executors.memory import Memory
from core.kernels.cpu.lent import LentCore
from core.kernels.cpu.library import Kernels
from core.layer_spec import LayerSpec
from core.model.forward import Logits
from core.model_input import ModelInput
from core.models.spec import DecoderSpec


class CompiledExecutor:
    """Computes the logits of packed tokens. Core thread only.

    ``layers`` are the shapes of each layer's attention.
    """

    def __init__(
        self, kernels: Kernels, calls: Calls, spec_of: Callable[[int], DecoderSpec]
    ) -> None:
        """``spec_of`` gives the spec for a served length, in tokens."""
        self._spec_of = spec_of
        self.layers: list[LayerSpec] = calls.layers
        self.begin: Callable[[], object] = lambda: None
        """Called before the layers are computed: other Python threads may run from then on."""
        self.lent: LentCore | None = None
        """A core that may be lent meanwhile."""
        self.times: AbstractContextManager[int | None] = nullcontext()
        """Surrounds the call; gives the memory of StageTimes, or None."""
        self._kernels, self._calls = kernels, calls
        self._model = calls.model
        array = c_void_p * len(calls.calls)
        self._layers = array(*map(ctypes.addressof, calls.calls))
        self._attentions = array()
        self._attention: AttentionBackend | None = None
        self._logits = LogitsBuffer(calls.vocab_size)
        self._states, self._normed = Memory(), Memory()
        self._best = (c_int64 * 0)()
        self._angles: AngleTable | None = None

    def fix_length(self, max_model_len: int) -> None:
        """See Executor. Needed before the first step."""
        layers = self._spec_of(max_model_len).layers
        ropes = [layer.mixer.rope for layer in layers if layer.mixer.rope is not None]
        self._angles = AngleTable(partial(angles_of, ropes[0])) if ropes else None

    def attach(self, attention: AttentionBackend) -> None:
        """Compute attention with a backend from now on. Raises ModelLoadError for another kind."""
        calls = attention.kernel_calls if isinstance(attention, KernelBackend) else None
        if calls is None:
            raise ModelLoadError("the attention backend is not part of the compiled kernels")
        self._attention = attention  # keeps alive what the calls point to
        self._attentions = (c_void_p * len(calls))(*calls)

    def uninstall(self) -> None:
        """Release the attention. Attach another one before the next step."""
        self._attention = None

    def __call__(self, batch: ModelInput) -> Logits:
        """The logits of a step whose attention is planned, or its best tokens alone."""
        call, num_tokens, num_logits = self._model, *batch.sizes
        rotated = 0
        if self._angles is not None:
            self._angles.cover(int(batch.context_lens.max()))
            call.cosines, call.sines = self._angles.addresses
            call.rotated = rotated = self._angles.rotated
        x = self._states.of(4 * num_tokens * (call.hidden + 2 * rotated))
        cos = x + 4 * num_tokens * call.hidden
        sin = cos + 4 * num_tokens * rotated
        workspace = self._calls.workspace
        workspace.fit(num_tokens)
        workspace.point(x, cos, sin, rotated)
        room = self._logits.of(num_logits)
        if len(self._best) < num_logits:
            self._best = (c_int64 * num_logits)()
        call.num_tokens, call.num_logits = num_tokens, num_logits
        call.ids, call.places = batch.token_ids.data_ptr(), batch.positions.data_ptr()
        call.chosen = batch.logits_indices.data_ptr()
        call.x, call.cos, call.sin = x, cos, sin
        call.normed = self._normed.of(4 * num_logits * call.hidden)
        call.logits, call.logits_stride = room.address, room.stride
        call.best = ctypes.addressof(self._best) if batch.wants_best else None
        self._run(ctypes.addressof(call))
        return Logits(room.logits, self._best[:num_logits] if batch.wants_best else None)

    def _run(self, model: int) -> None:
        lent = None if self.lent is None else self.lent.address
        self.begin()
        with self.times as times:
            self._kernels.layers(
                self._layers, self._attentions, len(self._layers), model, lent, times
            )
