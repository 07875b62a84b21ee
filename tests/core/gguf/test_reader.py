"""The reader: what it finds, what it refuses by name, and that no bytes get past its checks."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from core.contract.errors import ModelLoadError
from core.gguf.blocks import BLOCK_TYPES, F32, Q8_0, BlockType
from core.gguf.metadata import Metadata
from core.gguf.reader import Header, read_header
from core.gguf.strings import Strings
from tests.support.gguf_blocks import random_matrix
from tests.support.gguf_files import Raw, field, gguf_bytes, string

VALUES = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.add_bos_token": True,
    "tokenizer.ggml.tokens": ["a", "\N{LOWER ONE EIGHTH BLOCK}b", ""],
    "tokenizer.ggml.scores": np.array([0.5, -1.0, 2.0], np.float32),
    "negative": -3,
}
TENSORS = {
    "token_embd.weight": Raw.of(random_matrix(Q8_0, 3, 64)),
    "output_norm.weight": Raw((5,), F32, np.arange(5, dtype=np.float32).tobytes()),
}


def read(data: bytes) -> Header:
    return read_header(np.frombuffer(data, np.uint8))


def test_metadata_and_tensors_are_found():
    header = read(gguf_bytes(VALUES, TENSORS))
    found = Metadata(header.metadata)
    assert found.text("general.architecture") == "llama"
    assert found.integer("llama.block_count") == 2
    assert found.number("llama.rope.freq_base") == 10000.0
    assert found.flag("tokenizer.ggml.add_bos_token") is True
    assert list(found.strings("tokenizer.ggml.tokens")) == VALUES["tokenizer.ggml.tokens"]
    assert found.numbers("tokenizer.ggml.scores").tolist() == [0.5, -1.0, 2.0]
    assert found.integer("negative", least=-5) == -3
    embedding = header.tensors["token_embd.weight"]
    assert (embedding.shape, embedding.type, embedding.nbytes) == ((3, 64), Q8_0, 3 * 2 * 34)
    norm = header.tensors["output_norm.weight"]
    data = gguf_bytes(VALUES, TENSORS)[norm.start : norm.start + norm.nbytes]
    assert np.frombuffer(data, np.float32).tolist() == [0, 1, 2, 3, 4]


def test_a_file_may_have_another_alignment():
    data = gguf_bytes(VALUES | {"general.alignment": 256}, TENSORS, alignment=256)
    assert read(data).tensors["output_norm.weight"].start % 256 == 0


def whole(**changes: bytes) -> bytes:
    """A small file of pieces that can be replaced."""
    pieces = {
        "magic": b"GGUF",
        "version": struct.pack("<I", 3),
        "counts": struct.pack("<QQ", 1, 1),
        "key": field("k", 1),
        "name": string("t"),
        "dims": struct.pack("<IQ", 1, 8),
        "type": struct.pack("<I", 0),
        "offset": struct.pack("<Q", 0),
    }
    head = b"".join((pieces | changes).values())
    return head + bytes(-len(head) % 32) + bytes(32)


HUGE = struct.pack("<Q", 1 << 62)
REFUSED = {
    "it does not begin with GGUF": whole(magic=b"GGML"),
    "it has version 1 of the format": whole(version=struct.pack("<I", 1)),
    "big-endian": whole(version=struct.pack(">I", 3)),
    "claims 4611686018427387904 keys": whole(counts=struct.pack("<QQ", 1, 1 << 62)),
    "claims 4611686018427387904 tensors": whole(counts=struct.pack("<QQ", 1 << 62, 1)),
    "it ends within its header": whole(key=HUGE + b"k"),
    "a key has 0 bytes": whole(key=string("") + struct.pack("<II", 4, 1)),
    "a key has 1025 bytes": whole(key=field("k" * 1025, 1)),
    "a key is not UTF-8": whole(key=string(b"\xff") + struct.pack("<II", 4, 1)),
    "k is not UTF-8": whole(key=field("k", b"\xff")),
    "the key k occurs twice": whole(counts=struct.pack("<QQ", 1, 2), key=field("k", 1) * 2),
    "k has values of the unknown type 13": whole(key=string("k") + struct.pack("<II", 13, 1)),
    "k has values of the unknown type 9": whole(key=string("k") + struct.pack("<IIQ", 9, 9, 1)),
    "claims 4611686018427387904 numbers in k": whole(
        key=string("k") + struct.pack("<II", 9, 4) + HUGE
    ),
    "claims 4611686018427387904 strings in k": whole(
        key=string("k") + struct.pack("<II", 9, 8) + HUGE
    ),
    "it ends within k": whole(key=string("k") + struct.pack("<IIQ", 9, 8, 2) + string("a") + HUGE),
    "the tensor t has 0 dimensions": whole(dims=struct.pack("<I", 0)),
    "the tensor t has 5 dimensions": whole(dims=struct.pack("<I5Q", 5, 1, 1, 1, 1, 1)),
    "the tensor t has the shape (0,)": whole(dims=struct.pack("<IQ", 1, 0)),
    "the tensor t is stored as Q2_K, which is not supported": whole(type=struct.pack("<I", 10)),
    "the tensor t is stored as type 99, which is not supported": whole(type=struct.pack("<I", 99)),
    "rows of 8 values, which do not divide into blocks of 32": whole(type=struct.pack("<I", 8)),
    "the tensor t begins at 4, not aligned to 32": whole(offset=struct.pack("<Q", 4)),
    "the tensor t ends beyond the file": whole(offset=struct.pack("<Q", 32)),
    "tensor t ends beyond the file": whole(dims=struct.pack("<I2Q", 2, 1 << 40, 1 << 40)),
    "t ends beyond the file": whole(dims=struct.pack("<I4Q", 4, *[(1 << 64) - 1] * 4)),
    "the tensor t occurs twice": whole(
        counts=struct.pack("<QQ", 2, 1),
        offset=struct.pack("<Q", 0) + string("t") + struct.pack("<IQIQ", 1, 8, 0, 0),
    ),
    "the tensors t and u overlap": whole(
        counts=struct.pack("<QQ", 2, 1),
        offset=struct.pack("<Q", 0) + string("u") + struct.pack("<IQIQ", 1, 8, 0, 0),
    ),
    "general.alignment is 33": whole(key=field("general.alignment", 33)),
    "general.alignment is 0": whole(key=field("general.alignment", 0)),
    "general.alignment is 'x'": whole(key=field("general.alignment", "x")),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_wrong_is_refused_by_name(message):
    with pytest.raises(ModelLoadError) as raised:
        read(REFUSED[message])
    assert message in str(raised.value)


def test_a_file_that_ends_early_is_refused_wherever_it_ends():
    data = gguf_bytes(VALUES, TENSORS)
    used = max(info.start + info.nbytes for info in read(data).tensors.values())
    for end in range(used):
        with pytest.raises(ModelLoadError):
            read(data[:end])


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Bytes overwritten, removed or repeated, often at the places of counts and lengths."""
    result = bytearray(data)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(result))
        match draw.randrange(5):
            case 0:
                result[at] = draw.randrange(256)
            case 1:
                width = draw.choice((1, 2, 4, 8))
                number = draw.choice((0, 1, 2, 255, 1 << 31, (1 << 63) - 1, (1 << 64) - 1))
                packed = (number & ((1 << 8 * width) - 1)).to_bytes(width, "little")
                result[at : at + width] = packed
            case 2:
                del result[at : at + draw.randint(1, 40)]
            case 3:
                result[at:at] = result[at : at + draw.randint(1, 40)]
            case 4:
                result[at : at + 1] = draw.randbytes(draw.randint(1, 9))
        if not result:
            return b"G"
    return bytes(result)


def check_contained(data: bytes) -> bool:
    """Read a file; whatever it finds lies inside. Whether it was accepted."""
    try:
        header = read(data)
        for key, value in header.metadata.items():
            if isinstance(value, Strings):
                list(Metadata(header.metadata).strings(key))
    except ModelLoadError:
        return False
    for info in header.tensors.values():
        assert info.start >= 0
        assert info.start + info.nbytes <= len(data)
        assert info.type in BLOCK_TYPES.values()
    return True


def fuzz(count: int, seed: int) -> int:
    """Read so many mutated files; how many were accepted."""
    draw, data = random.Random(seed), gguf_bytes(VALUES, TENSORS)
    return sum(check_contained(mutated(data, draw)) for _ in range(count))


def test_mutated_files_are_read_or_refused():
    assert 0 < fuzz(2000, seed=1) < 2000


@pytest.mark.soak
def test_many_mutated_files_are_read_or_refused():
    assert 0 < fuzz(500_000, seed=2) < 500_000


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.text("missing"), "its metadata lacks missing"),
        (lambda m: m.text("n"), "n is not a string"),
        (lambda m: m.integer("s"), "s is not an integer"),
        (lambda m: m.integer("t"), "t is not an integer"),
        (lambda m: m.integer("n", most=6), "n is 7, not in 0 to 6"),
        (lambda m: m.integer("a"), "a differs between layers"),
        (lambda m: m.number("t"), "t is not a number"),
        (lambda m: m.number("inf"), "inf is inf"),
        (lambda m: m.flag("n"), "n is not a boolean"),
        (lambda m: m.strings("a"), "a is not an array of strings"),
        (lambda m: m.numbers("s"), "s is not an array of numbers"),
    ],
)
def test_values_of_another_type_are_refused_by_their_key(call, message):
    metadata = Metadata(
        {
            "s": "x",
            "n": 7,
            "t": True,
            "inf": float("inf"),
            "a": np.array([1, 2]),
            "b": np.array([5, 5]),
        }
    )
    with pytest.raises(ModelLoadError) as raised:
        call(metadata)
    assert message in str(raised.value)
    assert metadata.integer("b") == 5


def test_keys_that_nobody_read_are_refused_unless_harmless():
    metadata = Metadata({"llama.a": 1, "llama.b": 2, "llama.c": 3, "other": 4})
    metadata.integer("llama.a")
    metadata.check_all_read("llama.", {"b", "c"})
    with pytest.raises(ModelLoadError, match=r"has llama\.c, which could change"):
        metadata.check_all_read("llama.", {"b"})


def test_block_types_have_the_sizes_of_the_format():
    assert {kind.name: (kind.size, kind.nbytes) for kind in BLOCK_TYPES.values()} == {
        "F32": (1, 4),
        "F16": (1, 2),
        "BF16": (1, 2),
        "Q4_0": (32, 2 + 16),
        "Q4_1": (32, 4 + 16),
        "Q5_0": (32, 2 + 4 + 16),
        "Q5_1": (32, 4 + 4 + 16),
        "Q8_0": (32, 2 + 32),
        "Q4_K": (256, 4 + 12 + 128),
        "Q5_K": (256, 4 + 12 + 32 + 128),
        "Q6_K": (256, 128 + 64 + 16 + 2),
        "IQ4_NL": (32, 2 + 16),
    }
    assert all(isinstance(kind, BlockType) for kind in BLOCK_TYPES.values())
