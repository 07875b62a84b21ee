from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from server.cli.chat.terminal import MarkdownStream, split_blocks, visible

ANSWER = """\
# Title

Some *text* of a
paragraph.

- one
- two

  still two

1. first

2. second

```python
def f():

    return 1
```

| a | b |
|---|---|
| 1 | 2 |

<think>not a tag</think>

The end."""


def drawn(pieces, clock=lambda: 0.0, **options):
    out = io.StringIO()
    console = Console(file=out, width=60, height=12, **options)
    stream = MarkdownStream(console, clock)
    for piece in pieces:
        stream.feed(piece)
    stream.end()
    return out.getvalue()


class Ticks:
    """A clock that is always late enough to draw."""

    now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def test_only_a_line_feed_ends_a_line():
    blocks = ["a\u2028b\n\n", "c\u2028d\n\n", "e\n"]
    assert split_blocks("".join(blocks)) == blocks


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_an_answer_in_pieces_is_printed_like_a_whole_one(size):
    pieces = [ANSWER[i : i + size] for i in range(0, len(ANSWER), size)]
    whole = drawn([ANSWER])
    assert drawn(pieces, Ticks()) == whole
    for words in ("Title", "paragraph.", "• two", "2 second", "return 1", "<think>not a tag"):
        assert words in whole
    assert "```" not in whole


def test_only_the_last_block_is_drawn_again():
    shown = drawn([ANSWER, "\n\nMore.", "\n\nMost."], Ticks(), force_terminal=True)
    assert shown.count("Some ") == 1
    assert shown.count("still two") == 1


def test_a_block_that_is_taller_than_the_screen_shows_its_end():
    lines = [f"{i}\n" for i in range(40)]
    shown = drawn(["```\n", *lines], Ticks(), force_terminal=True)
    frames = shown.split("\x1b[?25l")[-1]
    assert "39" in frames
    assert "\x1b[1A" * 13 not in shown  # never moves above the screen


blocks = st.sampled_from(
    [
        "# a",
        "b",
        "- c",
        "  d",
        "```",
        "> e",
        "| f | g |",
        "|---|---|",
        "1. h",
        "***",
        "",
        "    i",
        "j\n---",
        "<div>",
        "~~~",
        "#k",
        "```l",
    ]
)


@given(st.lists(blocks, max_size=12).map("\n".join), st.data())
def test_complete_blocks_stay_as_they_are(text, data):
    """However a text grows, its complete blocks were blocks of the whole text."""
    end = data.draw(st.integers(0, len(text)))
    *complete, pending = split_blocks(text[:end])
    assert "".join([*complete, pending]) == text[:end]
    assert split_blocks(text)[: len(complete)] == complete


def test_a_model_cannot_control_the_terminal():
    assert visible("a\x1b[2Jb\x07\x9b1m\r\n\tc\x7f") == "a[2Jb1m\n\tc"
    assert "\x1b[2J" not in drawn(["hello \x1b[2J world"])
