"""Texts that tokenizers are compared on: scripts, spaces, digits, code, and rare characters."""

from __future__ import annotations

import itertools

_SENTENCES = (
    "Hello world",
    "I'm sure you'LL see they've 'got what WE'D need; it's O'Neill's, isn't it?",
    " leading, double  and   trailing   ",
    "\ttabs\t\tand\n\nlines\r\n  indented\n \n\n\n",
    "def f(x_1: int) -> str:\n    return f'{x_1 ** 2:>10}'  # 1,234.50e-10\n",
    "1 12 123 1234 12345 0x1F 3.14159 \u0661\u0662\u0663 \u00bd",
    "na\u00efve caf\u00e9 \u00c0\u00c9\u00ce \ufb01n e\u0301 \u212b",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3002\u4e2d\u6587\u5b57\u7b26\uff0c\ud55c\uad6d\uc5b4",
    "\u0440\u0443\u0441\u0441\u043a\u0438\u0439 \u05e2\u05d1\u05e8\u05d9\u05ea",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22",
    "\u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f389\U0001f3fd \u2764\ufe0f",
    'https://example.com/a?b=c&d=%20#e <b>bold</b> {"key": [1, null]} $x^2$ // /* */ \\n',
    "CamelCase snake_case SCREAMING iPhone McDonald's \u00dcBER \u01c5 a1b2c3",
    "... --- !!! ??? ,,, ((( ))) [[ ]] `` '' \"\" ~~ == != <= >= && || +++",
)

_RANGES = (
    range(0x20, 0x17F),
    range(0x370, 0x400),
    range(0x600, 0x660),
    range(0x2000, 0x2070),
    range(0x3040, 0x3100),
    range(0x4E00, 0x4E40),
    range(0xAC00, 0xAC40),
    range(0x1F600, 0x1F640),
)

PROBES = (
    *_SENTENCES,
    *("".join(map(chr, characters)) for characters in _RANGES),
    *(" ".join(map(chr, characters)) for characters in _RANGES),
    "".join(f"{a}{b}" for a, b in itertools.permutations("a Z9.\n'\t-\u00e9\u4e2d_", 2)),
)
"""They have no special tokens and no unassigned characters."""
