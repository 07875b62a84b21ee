"""Encodes examples and packs them into rows of equal length."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch
from transformers import PreTrainedTokenizerFast

from training.corpus.chat import Conversation, Document
from training.tokenizer import END_OF_TEXT, TURN_END, TURN_START

PROMPT_WEIGHT = 0.1
"""Loss weight of prompt tokens; tokens of the assistant have weight one."""

MARKS = (TURN_START, TURN_END, "assistant", "<think>")
ROW_LENGTHS = (256, 512, 2048)
TOKENS_PER_BATCH = 2048


@dataclass(frozen=True)
class Encoded:
    """The tokens of one example and their loss weights."""

    ids: list[int]
    weights: list[float]


@dataclass(frozen=True)
class Batch:
    """Tokens and loss weights, both [num_rows, length]."""

    ids: torch.Tensor
    weights: torch.Tensor


def render(example: Conversation | Document, tokenizer: PreTrainedTokenizerFast) -> str:
    """The text of an example as the model reads it."""
    if isinstance(example, Document):
        return example.text + END_OF_TEXT
    text = tokenizer.apply_chat_template(
        example.messages, tools=example.tools or None, tokenize=False
    )
    return str(text) + END_OF_TEXT


def encode(
    examples: Sequence[Conversation | Document], tokenizer: PreTrainedTokenizerFast
) -> list[Encoded]:
    """Tokens and loss weights of the examples."""
    texts = [render(example, tokenizer) for example in examples]
    batch = tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)
    marks = [tokenizer.convert_tokens_to_ids(mark) for mark in MARKS]
    encoded = []
    for example, result in zip(examples, batch, strict=True):
        weights = (
            [1.0] * len(result.ids)
            if isinstance(example, Document)
            else _weights(result.ids, *marks)
        )
        encoded.append(Encoded(result.ids, weights))
    return encoded


def _weights(ids: list[int], start: int, end: int, assistant: int, think: int) -> list[float]:
    """Weight one for assistant turns, from after their header to the end of the turn.

    The prompt, not the model, generates ``<think>``, so that token has weight zero.
    """
    weights = [PROMPT_WEIGHT] * len(ids)
    position = 0
    while position < len(ids) - 1:
        if ids[position] == start and ids[position + 1] == assistant:
            position += 3
            if ids[position] == think:
                weights[position] = 0.0
                position += 1
            while position < len(ids):
                weights[position] = 1.0
                if ids[position] == end:
                    break
                position += 1
        position += 1
    return weights


def pack(examples: Sequence[Encoded], pad: int, seed: int) -> list[Batch]:
    """Pack whole examples into rows and rows into batches, in random order.

    An example goes to the shortest rows of which it fills at most 80 %. One example in forty goes
    to the longest rows, so that the model also learns late positions.
    """
    random = Random(seed)
    order = list(examples)
    random.shuffle(order)
    groups: dict[int, list[Encoded]] = {length: [] for length in ROW_LENGTHS}
    for example in order:
        if random.random() < 1 / 40:
            groups[ROW_LENGTHS[-1]].append(example)
            continue
        fitting = [n for n in ROW_LENGTHS if len(example.ids) <= n * 0.8] or [ROW_LENGTHS[-1]]
        groups[fitting[0]].append(example)
    batches: list[Batch] = []
    for length, group in groups.items():
        rows = _rows(group, length, pad)
        random.shuffle(rows)
        size = TOKENS_PER_BATCH // length
        for first in range(0, len(rows) - size + 1, size):
            chosen = rows[first : first + size]
            batches.append(
                Batch(
                    torch.tensor([row.ids for row in chosen]),
                    torch.tensor([row.weights for row in chosen]),
                )
            )
    random.shuffle(batches)
    return batches


def _rows(examples: Sequence[Encoded], length: int, pad: int) -> list[Encoded]:
    """Fill rows by first fit among 48 open ones; padding has weight zero."""
    full: list[Encoded] = []
    rows: list[Encoded] = []
    for example in examples:
        ids, weights = example.ids[:length], example.weights[:length]
        for row in rows:
            if len(row.ids) + len(ids) <= length:
                row.ids.extend(ids)
                row.weights.extend(weights)
                break
        else:
            rows.append(Encoded(list(ids), list(weights)))
        if len(rows) > 48:
            rows.sort(key=lambda row: len(row.ids))
            full.append(rows.pop())
    for row in (*full, *rows):
        missing = length - len(row.ids)
        row.ids.extend([pad] * missing)
        row.weights.extend([0.0] * missing)
    return [*full, *rows]
