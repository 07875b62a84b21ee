"""Vocabulary: the bytes of every token, derived from a fast tokenizer's decoder.

Two families of decoders are supported, each with the semantics of the ``tokenizers`` library:
byte-level (the GPT-2 byte alphabet) and SentencePiece-like (``Metaspace``, or a sequence of
``Replace``, ``ByteFallback``, ``Fuse`` and ``Strip``). Other decoders get a vocabulary that is not
exact.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_PROBES = ("Hello, world!", "  two spaces\n\ttab", "naïve café €5", "日本語 한국어", "👩‍👩‍👧 🇩🇪 🙂")
_NUM_RANDOM_PROBES = 256


class Vocabulary:
    """The bytes of each token id. Immutable to its users; any thread may read it.

    Bytes are computed at first use and cached, so construction does not depend on the size. The
    space that some decoders remove from the start of a text is part of the bytes;
    ``strips_leading_space`` says that it must be removed.

    If ``is_exact`` is false, the bytes are those of each token decoded alone, and joining them
    may differ from ``decode``.
    """

    def __init__(
        self,
        *,
        size: int,
        special_ids: frozenset[int],
        token_bytes: Callable[[int], bytes],
        decode: Callable[[Sequence[int]], str],
        is_exact: bool,
        strips_leading_space: bool,
    ) -> None:
        """Use ``Vocabulary.of``."""
        self.special_ids = special_ids
        self.is_exact = is_exact
        self.strips_leading_space = strips_leading_space
        self.decode = decode
        """The tokenizer's own ``decode``, with special tokens."""
        self.token_bytes: Callable[[int], bytes] = _Table(token_bytes).__getitem__
        """The bytes of one token; empty for an id without a token, such as a padding row."""
        self._size = size

    def __len__(self) -> int:
        return self._size

    @classmethod
    def of(cls, tokenizer: Any, *, size: int | None = None) -> Vocabulary:
        """Read a transformers tokenizer; ``size`` is the model's, if it has more rows.

        The bytes are checked against ``tokenizer.decode`` on a few hundred fixed runs of ids. If
        one run differs, the vocabulary is not exact.
        """
        num_tokens = max(len(tokenizer), 1 + max(tokenizer.added_tokens_decoder, default=-1))
        size = max(size or 0, num_tokens)

        def decode(ids: Sequence[int]) -> str:
            text: str = tokenizer.decode(
                [token_id for token_id in ids if token_id < num_tokens],
                skip_special_tokens=False,
                clean_up_tokenization_spaces=False,
            )
            return text

        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is not None:
            added = backend.get_added_tokens_decoder()
            special_ids = frozenset(id_ for id_, token in added.items() if token.special)
            decoder = backend.decoder
            rule = _rule_of(json.loads(decoder.__getstate__())) if decoder is not None else None
            if rule is not None:
                vocabulary = cls(
                    size=size,
                    special_ids=special_ids,
                    token_bytes=_reader(backend.id_to_token, rule),
                    decode=decode,
                    is_exact=True,
                    strips_leading_space=rule.strips_leading_space,
                )
                encode = backend.encode_batch_fast
                probes = [run.ids for run in encode(list(_PROBES), add_special_tokens=False)]
                if _agrees(vocabulary, probes, num_tokens):
                    return vocabulary
        else:
            special_ids = frozenset(tokenizer.all_special_ids)
        return cls(
            size=size,
            special_ids=special_ids,
            token_bytes=lambda token_id: decode([token_id]).encode(),
            decode=decode,
            is_exact=False,
            strips_leading_space=False,
        )


class _Table(dict[int, bytes]):
    """A dict that computes missing entries. Two threads may compute the same entry twice."""

    def __init__(self, compute: Callable[[int], bytes]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, token_id: int) -> bytes:
        value = self[token_id] = self._compute(token_id)
        return value


class _Rule(msgspec.Struct, frozen=True, kw_only=True):
    """The rule by which a decoder turns the string of a token into bytes."""

    replacements: tuple[tuple[str, str], ...] = ()
    has_byte_fallback: bool = False
    is_byte_level: bool = False
    strips_leading_space: bool = False


def _rule_of(decoder: dict[str, Any]) -> _Rule | None:
    """Read the description of a decoder; None if a stage of it is not supported."""
    stages = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    replacements: list[tuple[str, str]] = []
    has_byte_fallback = is_byte_level = strips = is_joined = False
    for stage in stages:
        match stage:
            case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)} if not (
                has_byte_fallback or is_joined
            ):
                replacements.append((old, new))
            case {"type": "Metaspace", "replacement": str(old)} if not is_joined:
                replacements.append((old, " "))
                strips = stage.get("prepend_scheme") != "never"
            case {"type": "ByteFallback"} if not is_joined:
                has_byte_fallback = True
            case {"type": "ByteLevel"} if not (replacements or has_byte_fallback or is_joined):
                is_byte_level = is_joined = True
            case {"type": "Fuse"}:
                is_joined = True
            case {"type": "Strip", "content": " ", "start": 1, "stop": 0} if is_joined:
                strips = True
            case _:
                return None
    return _Rule(
        replacements=tuple(replacements),
        has_byte_fallback=has_byte_fallback,
        is_byte_level=is_byte_level,
        strips_leading_space=strips,
    )


def _reader(token_of: Callable[[int], str | None], rule: _Rule) -> Callable[[int], bytes]:
    """Make the function from an id to its bytes."""
    if rule.is_byte_level:
        alphabet = byte_alphabet()

        def read_byte_level(token_id: int) -> bytes:
            token = token_of(token_id) or ""
            try:
                return bytes([alphabet[character] for character in token])
            except KeyError:  # with a character outside the alphabet the token is plain text
                return token.encode()

        return read_byte_level

    fallback = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}
    known = fallback if rule.has_byte_fallback else {}

    def read_text(token_id: int) -> bytes:
        token = token_of(token_id) or ""
        for old, new in rule.replacements:
            token = token.replace(old, new)
        return known.get(token) or token.encode()

    return read_text


def byte_alphabet() -> dict[str, int]:
    """Return GPT-2's byte alphabet: printable Latin-1 is itself, the rest starts at U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in printable]
    return alphabet | {chr(256 + index): byte for index, byte in enumerate(others)}


def _agrees(vocabulary: Vocabulary, probes: list[list[int]], num_ids: int) -> bool:
    """Whether joined bytes equal the tokenizer's text for ``probes`` and for random runs."""
    draw = random.Random(0)
    runs = [
        [draw.randrange(num_ids) for _ in range(draw.randint(1, 8))]
        for _ in range(_NUM_RANDOM_PROBES)
    ]
    return all(_agrees_on(vocabulary, ids) for ids in (*runs, *probes))


def _agrees_on(vocabulary: Vocabulary, ids: list[int]) -> bool:
    parts = [vocabulary.token_bytes(token_id) for token_id in ids]
    ours = b"".join(parts).decode(errors="replace")
    if _REPLACEMENT in ours:  # decoders use different numbers of U+FFFD for invalid bytes
        return True
    theirs = vocabulary.decode(ids)
    if not vocabulary.strips_leading_space or not ids:
        return ours == theirs
    # Metaspace removes every space of the first token, Strip only one at the start.
    rest = len(b"".join(parts[1:]).decode(errors="ignore"))
    head = len(ours) - rest
    return ours[head:] == theirs[len(theirs) - rest :] and ours[:head].replace(" ", "") == theirs[
        : len(theirs) - rest
    ].replace(" ", "")
