"""Merges that are left out change no text's tokens: BPE with them and without is the same."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from core.gguf.vocabulary.merges import merges_of

ROOT = Path(__file__).parents[3]

UNITS = ["<unk>", "<0xC3>", "<0xA9>"]


def all_merges(tokens, ranks):
    """Every pair that is a token, by the token's rank and then the longer left part first."""
    known = set(tokens)
    pairs = [
        (rank, -at, (token[:at], token[at:]))
        for token, rank in zip(tokens, ranks, strict=True)
        for at in range(1, len(token))
        if token[:at] in known and token[at:] in known
    ]
    return [pair for *_, pair in sorted(pairs, key=lambda found: found[:2])]


def bpe(tokens, merges):
    ids = {token: i for i, token in enumerate(tokens)}
    return models.BPE(
        vocab=ids, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )


def pruned(tokens, ranks):
    ids = {token: i for i, token in enumerate(tokens)}
    return merges_of(tokens, ids, np.array(ranks), [ids[unit] for unit in UNITS])


def vocabulary(draw: random.Random):
    """Parts of a few words, so that most have several splits, and ranks.

    Ranks are those of training, in any order, or equal for some tokens.
    """
    pieces, weights = [*"ab<u", *UNITS], (9, 9, 1, 1, 1, 1, 1)
    words = [draw.choices(pieces, weights, k=7) for _ in range(3)]
    parts = {"".join(w[i:j]) for w in words for i in range(7) for j in range(i + 2, 8)}
    tokens = pieces + sorted((part for part in sorted(parts) if draw.random() < 0.8), key=len)
    ranks = list(range(len(tokens)))
    kind = draw.randrange(3)
    if kind:
        draw.shuffle(ranks)
    return tokens, [float(rank // 4 if kind == 2 else rank) for rank in ranks]


@pytest.mark.parametrize("seed", range(8))
def test_tokens_are_those_of_all_merges(seed: int):
    draw = random.Random(seed)
    num_pruned = 0
    for _ in range(60):
        tokens, ranks = vocabulary(draw)
        merges = all_merges(tokens, ranks)
        fewer = list(pruned(tokens, ranks))
        assert set(fewer) <= set(merges)
        num_pruned += len(merges) - len(fewer)
        expected, found = bpe(tokens, merges), bpe(tokens, fewer)
        texts = ["".join(draw.choices("ab<uéx", (9, 9, 2, 2, 2, 1), k=12)) for _ in range(60)]
        for text in [*tokens, *texts]:
            theirs, ours = expected.tokenize(text), found.tokenize(text)
            assert [t.id for t in theirs] == [t.id for t in ours], (text, tokens, ranks)
    assert num_pruned > 500


def test_nearly_one_merge_is_left_for_each_token_of_a_trained_vocabulary():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=4000, show_progress=False)
    tokenizer.train_from_iterator(
        (path.read_text("utf-8") for path in sorted(ROOT.glob("docs/*.md"))), trainer
    )
    tokens = [*UNITS, *(tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size()))]
    ranks = list(range(len(tokens)))
    assert len(all_merges(tokens, ranks)) > 1.3 * len(tokens)
    assert len(pruned(tokens, ranks)) < 1.06 * len(tokens)


def test_tokens_of_one_rank_keep_all_their_merges():
    """Nothing says which of them is joined first, but for their place in the list."""
    tokens = [*UNITS, "a", "b", "c", "ab", "bc", "abc"]
    ranks = np.zeros(len(tokens))
    assert len(pruned(tokens, ranks)) == len(all_merges(tokens, ranks)) == 4


def test_a_text_can_begin_with_units():
    """Of characters the unknown token is never joined with "a": ">a" is first."""
    tokens = ["<", ">", "a", ">a", "<>", "<>a"]
    ids = {token: i for i, token in enumerate(tokens)}
    merges = list(merges_of(tokens, ids, np.arange(6), [ids["<>"]]))
    model = models.BPE(vocab=ids, merges=merges, unk_token="<>")
    assert [[t.value for t in model.tokenize(text)] for text in ("xa", "<>a")] == [["<>a"]] * 2
