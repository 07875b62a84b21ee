"""A language model's forward pass in one call of the kernel: from token ids to logits or tokens.

Around a decoder transformers' code does little for the tokens of a step, but in many small
operations. In a step of one token they would take a tenth of the time.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int64

from core.executors.memory import Memory
from core.fusion.cpu.decoder import FusedDecoder
from core.fusion.cpu.head import PackedHead
from core.kernels.cpu.model import Angles, ModelCall
from core.model.forward import Logits
from core.model_input import ModelInput


class FusedModel:
    """Computes a step of a language model. Core thread only.

    The model is embeddings, a fused decoder, and a packed output layer on its result, no more.
    """

    def __init__(self, decoder: FusedDecoder, head: PackedHead, call: ModelCall) -> None:
        """``call`` has what is the same in every step."""
        self._decoder = decoder
        self._head = head
        self._call = call
        self._address = ctypes.addressof(call)
        self._states = Memory()  # x, then cosines and sines
        self._normed = Memory()
        self._angles = Angles()
        call.angles = ctypes.addressof(self._angles)
        self._best = (c_int64 * 0)()

    def __call__(self, batch: ModelInput) -> Logits | None:
        """The logits of a step, or its best tokens if these are all that is wanted.

        None if the attention that is attached is no kernel.
        """
        links = self._decoder.links
        if links is None:
            return None
        call, num_tokens, num_logits = self._call, *batch.sizes
        rotated = 0
        if links.angles is not None:
            links.angles.cover(int(batch.context_lens.max()))
            self._angles.cosines, self._angles.sines = links.angles.addresses
            self._angles.rotated = rotated = links.angles.rotated
        x = self._states.of(4 * num_tokens * (call.hidden + 2 * rotated))
        cos = x + 4 * num_tokens * call.hidden
        sin = cos + 4 * num_tokens * rotated
        links.point(num_tokens, x, x, (cos, sin, rotated))
        room = self._head.room(num_logits)
        if len(self._best) < num_logits:
            self._best = (c_int64 * num_logits)()
        call.num_tokens, call.num_logits = num_tokens, num_logits
        call.ids, call.places = batch.token_ids.data_ptr(), batch.positions.data_ptr()
        call.chosen = batch.logits_indices.data_ptr()
        call.x, call.num_angles = x, int(rotated > 0)
        self._angles.cos, self._angles.sin = cos, sin
        call.normed = self._normed.of(4 * num_logits * call.hidden)
        call.logits, call.logits_stride = room.address, room.stride
        call.best = ctypes.addressof(self._best) if batch.wants_best else None
        self._decoder.run(links, self._address)
        return Logits(room.logits, self._best[:num_logits] if batch.wants_best else None)
