"""Constrained generation from random logits."""

from __future__ import annotations

import gc
import json
import re
import weakref

import jsonschema
import pytest
import torch

from benchmarks.structured.schemas import random_schema
from core.contract.grammar import (
    after,
    choice,
    json_object,
    json_schema,
    lark,
    regex,
    structural_tags,
)
from core.grammar.masks import Masks, apply
from core.grammar.processor import GrammarProcessor
from core.grammar.progress import MatcherState
from tests.support.constrained import CPU, Decoder, builtin, tiny

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "mood": {"enum": ["good", "bad"]},
    },
    "required": ["name", "age", "mood"],
}


@pytest.fixture(scope="module")
def decoder():
    return Decoder()


def test_outputs_for_random_schemas_validate(decoder):
    schemas = [random_schema(seed) for seed in range(100)]
    sequences = [decoder.sequence(json_schema(s), seed=i) for i, s in enumerate(schemas)]
    texts = decoder.run(*sequences)
    for schema, text in zip(schemas, texts, strict=True):
        assert not text.endswith("…"), schema
        jsonschema.validate(json.loads(text), schema)


def test_outputs_validate_with_another_tokenizer_and_padding_rows():
    decoder = Decoder(tiny(), vocab_size=tiny().vocab_size + 41)
    schemas = [random_schema(seed) for seed in range(200, 220)]
    sequences = [decoder.sequence(json_schema(s), seed=i) for i, s in enumerate(schemas)]
    for schema, text in zip(schemas, decoder.run(*sequences), strict=True):
        jsonschema.validate(json.loads(text), schema)
    assert not any(
        token_id >= tiny().vocab_size for s in sequences for token_id in decoder.output_ids(s)
    )


def test_keys_are_in_the_order_of_the_schema(decoder):
    text = decoder.run(decoder.sequence(json_schema(PERSON)))[0]
    assert list(json.loads(text)) == ["name", "age", "mood"]


def test_a_sequence_gets_the_same_text_alone_and_in_a_batch():
    grammars = [
        json_schema(PERSON),
        None,
        regex("[a-c]{3,20}"),
        None,
        choice(["yes", "no"]),
        json_object(),
    ]

    def sequences(decoder):
        return [
            decoder.sequence(grammar, seed=seed, max_tokens=40)
            for seed, grammar in enumerate(grammars)
        ]

    decoder = Decoder()
    together = decoder.run(*sequences(decoder))
    alone = [decoder.run(sequence)[0] for sequence in sequences(Decoder())]
    assert together == alone


def test_a_pause_does_not_change_the_tokens():
    decoder = Decoder()
    whole = decoder.sequence(regex("[a-f]{40}"), seed=1)
    decoder.run(whole)
    paused = decoder.sequence(regex("[a-f]{40}"), seed=1)
    other = decoder.sequence(regex("[g-k]{40}"), seed=2)
    favourite_ids = tuple(builtin().encode('"}]', add_special_tokens=False))
    for turn in range(200):
        # Tokens computed again after a preemption are not new to the grammar.
        paused.num_computed_tokens = 0
        live = [s for s, when in ((paused, turn % 3 != 1), (other, turn % 3 != 2)) if when]
        live = [s for s in live if not decoder.is_done(s)]
        if live:
            assert not any(decoder.step(live, favourite_ids))
    assert decoder.output_ids(paused) == decoder.output_ids(whole)


def test_end_tokens_are_allowed_where_the_grammar_is_complete(decoder):
    grammar = regex("ab?")
    assert decoder.eos not in decoder.allowed(grammar)
    assert decoder.eos in decoder.allowed(grammar, "a")
    assert decoder.allowed(grammar, "ab") == {decoder.eos}


def test_all_end_tokens_of_the_model_end_a_grammar():
    tokenizer = builtin()
    decoder = Decoder(tokenizer)
    decoder.compiler.end_ids = (0, 2)
    assert decoder.allowed(choice(["a"]), "a") == {0, 2}
    assert not decoder.allowed(choice(["a"])) & {0, 1, 2}


def test_text_after_an_ignored_end_token_is_free(decoder):
    sequence = decoder.sequence(choice(["yes"]), ignore_eos=True, max_tokens=30)
    text = decoder.run(sequence)[0]
    assert text.startswith("yes")
    assert sequence.num_output_tokens == 30
    assert decoder.eos in decoder.output_ids(sequence)


def test_a_forbidden_token_fails_its_row_only(decoder):
    broken = decoder.sequence(choice(["yes", "no"]), seed=1)
    sound = decoder.sequence(choice(["yes", "no"]), seed=2)
    decoder.step([broken, sound])
    broken.token_ids[-1] = builtin().encode("#", add_special_tokens=False)[0]
    assert decoder.step([broken, sound]) == [True, False]


class PanicException(BaseException):
    """What a panic in Rust looks like."""


def raise_once(monkeypatch, matcher, error):
    """Make the executor raise when it advances this matcher, as a panic in it would."""
    whole = Masks._accepted

    def accepted(masks, steps):
        if any(step[0] is matcher for step in steps):
            raise error
        return whole(masks, steps)

    monkeypatch.setattr(Masks, "_accepted", accepted)


@pytest.mark.parametrize("num_sound", [1, 5])
def test_a_matcher_that_raises_fails_its_row_only(monkeypatch, num_sound):
    decoder = Decoder()
    broken = decoder.sequence(choice(["yes", "no"]), seed=1)
    sound = [decoder.sequence(regex("[ab]{9}"), seed=i) for i in range(num_sound)]
    expected = [decoder.run(decoder.sequence(regex("[ab]{9}"), seed=i)) for i in range(num_sound)]
    decoder.step([broken, *sound])
    matcher = decoder.processor._jobs[broken].progress.matcher
    raise_once(monkeypatch, matcher, ValueError("secret"))
    assert decoder.step([broken, *sound]) == [True] + [False] * num_sound
    assert "ValueError" in broken.failure
    assert "secret" not in broken.failure
    assert [decoder.run(sequence) for sequence in sound] == expected
    assert decoder.compiler._background is not None  # makes a new lexer for later sequences


@pytest.mark.parametrize("num_sound", [0, 3])
def test_after_a_panic_matchers_are_made_again_once(monkeypatch, num_sound):
    """A panic breaks a lexer for all sequences that share it."""
    decoder = Decoder()
    seeds = range(num_sound + 1)
    expected = [decoder.run(decoder.sequence(regex("[ab]{9}"), seed=seed)) for seed in seeds]
    sequences = [decoder.sequence(regex("[ab]{9}"), seed=seed) for seed in seeds]
    decoder.step(sequences)
    for sequence in sequences:
        decoder.processor._jobs[sequence].progress.seconds = 0.0  # advanced together
    progress = decoder.processor._jobs[sequences[0]].progress
    raise_once(monkeypatch, progress.matcher, PanicException("secret"))
    assert [decoder.run(sequence) for sequence in sequences] == expected
    again = decoder.sequence(regex("[ab]{9}"), seed=0)
    decoder.step([again])
    progress = decoder.processor._jobs[again].progress
    progress._shared = None
    raise_once(monkeypatch, progress.matcher, PanicException("secret"))
    assert decoder.step([again]) == [True]
    assert again.failure.endswith("The grammar is too complex.")
    assert "secret" not in again.failure


class UnfillableMatcher:
    """No matcher, so neither a token nor a mask is possible."""


@pytest.mark.parametrize("num_sound", [0, 1, 5])
def test_a_mask_that_cannot_be_filled_fails_its_row_only(num_sound):
    decoder = Decoder()
    broken = decoder.sequence(choice(["yes", "no"]), seed=1)
    sound = [decoder.sequence(choice(["yes", "no"]), seed=i) for i in range(num_sound)]
    decoder.step([broken, *sound])
    decoder.processor._jobs[broken].progress.matcher = UnfillableMatcher()
    assert decoder.step([broken, *sound]) == [True] + [False] * num_sound
    assert broken.failure is not None
    assert all(sequence.failure is None for sequence in sound)


def test_a_dead_end_is_named(decoder):
    sequence = decoder.sequence(choice(["yes", "no"]), seed=1)
    decoder.step([sequence])
    sequence.token_ids[-1] = builtin().encode("#", add_special_tokens=False)[0]
    assert decoder.step([sequence]) == [True]
    assert sequence.failure.startswith("The grammar of this request cannot continue: ")


def test_processors_that_mask_everything_fail_their_row_only(decoder):
    digits = tuple(builtin().encode("7", add_special_tokens=False))
    masked = decoder.sequence(choice(["yes"]), allowed_token_ids=digits)
    sound = decoder.sequence(choice(["yes"]))
    assert decoder.step([masked, sound]) == [True, False]


def test_other_processors_choose_among_allowed_tokens(decoder):
    y, n = (builtin().encode(text, add_special_tokens=False)[0] for text in ("yes", "no"))
    sequences = [
        decoder.sequence(choice(["yes", "no"]), logit_bias={n: 100.0}, seed=1),
        decoder.sequence(choice(["yes", "no"]), logit_bias={y: 100.0}, seed=1, top_k=1),
        decoder.sequence(choice(["yes", "no"]), bad_words_ids=((y,),), seed=1, temperature=0.0),
    ]
    decoder.step(sequences)
    assert [s.token_ids[-1] for s in sequences] == [n, y, sequences[2].token_ids[-1]]
    assert sequences[2].token_ids[-1] != y


def test_logprobs_are_those_before_masking(decoder):
    sequence = decoder.sequence(choice(["yes"]), logprobs=2)
    logits = decoder.logits(sequence)[None]
    expected = logits.log_softmax(dim=1)[0]
    (result,) = decoder.sampler(logits.clone(), [sequence])
    (entry,) = result.logprobs
    assert entry.logprob == pytest.approx(float(expected[entry.token_id]))
    assert entry.top[0][1] == pytest.approx(float(expected.max()))


def test_progress_is_dropped_with_its_sequence(decoder):
    sequence = decoder.sequence(choice(["yes"]))
    decoder.step([sequence])
    assert sequence in decoder.processor._jobs
    gone = weakref.ref(sequence)
    num_before = len(decoder.processor._jobs)
    decoder.step([decoder.sequence(None)])  # the sampler keeps one batch
    del sequence
    gc.collect()
    assert gone() is None
    assert len(decoder.processor._jobs) < num_before


def test_a_failed_step_does_not_change_the_output(decoder):
    sequence = decoder.sequence(regex("[ab]{9}"), seed=4)
    expected = decoder.run(decoder.sequence(regex("[ab]{9}"), seed=4))
    decoder.sampler.prepare([sequence])  # and the forward pass fails
    decoder.sampler.prepare([sequence])
    assert decoder.run(sequence) == expected


def test_without_grammars_nothing_is_loaded(decoder):
    fresh = Decoder()
    fresh.run(fresh.sequence(None, max_tokens=3))
    assert not fresh.processor._lanes.has_started
    assert fresh.compiler._factory is None


def test_masks_apply_to_some_or_all_rows(decoder):
    constrained, free = decoder.sequence(choice(["yes"])), decoder.sequence(None)
    logits = torch.zeros(2, decoder.vocab_size)
    decoder.processor.apply(logits, [1], [constrained])
    assert (logits[0] == 0).all()
    only = torch.zeros(1, decoder.vocab_size)
    decoder.processor.apply(only, [0], [constrained])
    assert torch.equal(only[0], logits[1])
    assert torch.isneginf(only).any()
    del free


def test_packed_masks_equal_masks_to_add(decoder):
    """A GPU gets packed masks and unpacks them with the same operations as here."""
    grammars = [choice(["yes"]), json_object(), regex("[^a]")]
    rows = [MatcherState(decoder.compiler, grammar) for grammar in grammars]
    for progress, grammar in zip(rows, grammars, strict=True):
        decoder.compiler.check(grammar)
        progress.begin([])
    idle = decoder.compiler.failed_matcher
    masks = Masks(decoder.vocab_size, decoder.compiler.end_ids, CPU, new_idle=idle)
    words, again = masks.fill(rows)
    assert not again
    plain = masks.packed(words).tensor
    packed = Masks(0, (), torch.device("meta"), new_idle=idle).packed(words).tensor
    for vocab_size in (decoder.vocab_size, decoder.vocab_size - 5):
        for targets in ([0, 1, 2], [4, 0, 2]):
            expected = torch.zeros(3 if targets[0] == 0 else 6, vocab_size)
            actual = expected.clone()
            apply(expected, targets, plain)
            apply(actual, targets, packed)
            assert torch.equal(expected, actual)
            assert torch.isneginf(actual).any()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_masks_on_a_gpu_equal_those_on_the_cpu(decoder):
    processor = GrammarProcessor(decoder.compiler, torch.device("cuda"))
    sequences = [decoder.sequence(g) for g in (choice(["yes"]), json_object())]
    expected, actual = torch.zeros(3, 2048), torch.zeros(3, 2048, device="cuda")
    decoder.processor.apply(expected, [0, 2], sequences)
    processor.apply(actual, [0, 2], sequences)
    assert torch.equal(expected, actual.cpu())


# Each kind of grammar


def test_regexes_match_the_whole_text(decoder):
    pattern = r"(19|20)\d\d-[01]\d"
    texts = decoder.run(*(decoder.sequence(regex(pattern), seed=seed) for seed in range(8)))
    assert all(re.fullmatch(pattern, text, re.ASCII) for text in texts)


def test_a_regex_with_anchors_and_slashes(decoder):
    assert decoder.accepts(regex("^a/b$"), "a/b")
    assert not decoder.accepts(regex("^a/b$"), "xa/b")


def test_outputs_are_among_the_choices(decoder):
    options = ["yes", "no", 'say "hi"', "line\nend", "🙂", "<|im_end|>"]
    texts = decoder.run(*(decoder.sequence(choice(options), seed=seed) for seed in range(30)))
    assert set(texts) <= set(options)
    assert len(set(texts)) > 2


def test_client_text_never_matches_a_special_token(decoder):
    special = builtin().special_ids
    for grammar in (choice(["<|im_start|>"]), regex(r"<\|im_start\|>"), json_object()):
        assert not decoder.allowed(grammar) & special - {decoder.eos}


@pytest.mark.parametrize(
    "source",
    [
        'start: "a" start "b" | "ab"',
        'root ::= "a" root "b" | "ab"',
        'start: expr\nexpr: expr "+" expr | /[0-9]+/',
    ],
)
def test_lark_and_gbnf_are_accepted(decoder, source):
    text = {"a": "aabb", "e": "1+23+4"}["e" if "expr" in source else "a"]
    assert decoder.accepts(lark(source), text)
    assert not decoder.accepts(lark(source), text + "a")


def test_whitespace_is_bounded(decoder):
    blank = {token_id for token_id in range(2048) if not builtin().token_bytes(token_id).strip()}
    grammar = json_object()
    text = "{"
    for _ in range(40):
        allowed = decoder.allowed(grammar, text) & blank
        if not allowed:
            break
        widest = max(allowed, key=lambda token_id: len(builtin().token_bytes(token_id)))
        text += builtin().token_bytes(widest).decode()
    assert len(text) < 40
    assert not decoder.allowed(json_schema(PERSON, is_compact=True), "{") & blank


def test_pretty_and_compact_json_are_accepted(decoder):
    value = {"name": "Bo", "age": 7, "mood": "bad"}
    for text in (json.dumps(value), json.dumps(value, indent=4), json.dumps(value, indent="\t")):
        assert decoder.accepts(json_schema(PERSON), text)
    assert decoder.accepts(
        json_schema(PERSON, is_compact=True), json.dumps(value, separators=(",", ":"))
    )


# Free text and grammars


def test_grammar_applies_after_the_thinking(decoder):
    grammar = after(choice(["yes", "no"]))
    assert decoder.accepts(grammar, "hm, <b> </b> let me see</think>\n\nyes")
    assert decoder.accepts(grammar, "</think>no")
    assert not decoder.accepts(grammar, "hm</think>maybe")
    assert not decoder.accepts(grammar, "yes")
    assert decoder.eos not in decoder.allowed(grammar, "still thinking")


def test_thinking_may_be_left_out(decoder):
    grammar = after(choice(["yes"]), begin="<think>")
    assert decoder.accepts(grammar, "<think>hm</think>\nyes")
    assert decoder.accepts(grammar, "yes")
    assert not decoder.accepts(grammar, "hm</think>yes")


def test_markers_may_be_special_tokens(decoder):
    grammar = after(choice(["yes"]), "<|im_start|>")
    assert decoder.accepts(grammar, "<|endoftext|>hm<|im_start|>yes")
    assert not decoder.accepts(grammar, "hm<|im_start|>no")


def test_structural_tags_constrain_their_content(decoder):
    grammar = structural_tags(
        [
            ("<f=age>", {"type": "integer", "maximum": 9, "minimum": 0}, "</f>"),
            ("<f=ok>", {"type": "boolean"}, "</f>"),
        ],
        ["<f="],
    )
    assert decoder.accepts(grammar, "free <text> here")
    assert decoder.accepts(grammar, "I say <f=age>7</f> and <f=ok>true</f>.")
    assert not decoder.accepts(grammar, "I say <f=age>true</f>")
    assert not decoder.accepts(grammar, "I say <f=other>7</f>")
    assert not decoder.accepts(grammar, "I say <f=age>7")
    sequences = [decoder.sequence(grammar, seed=seed, max_tokens=120) for seed in range(6)]
    for text in decoder.run(*sequences, favourites="<f=>"):
        for inside in re.findall(r"<f=(.*?)</f>", text):
            assert re.fullmatch(r"age>[0-9]|ok>(true|false)", inside)
