"""Finding: one line of the doctor's report."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

State: TypeAlias = Literal["ok", "note", "problem"]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was looked at, and how it is. A ``problem`` would stop a start.

    ``advice`` says what to change, ``details`` are lines below the text.
    """

    name: str
    state: State
    text: str
    advice: str = ""
    details: tuple[str, ...] = ()
