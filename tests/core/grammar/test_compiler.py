"""Grammars that compile or are refused in bounded time, and the cache of compiled grammars."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from core.contract.errors import InvalidRequest, RequestCancelled
from core.contract.grammar import (
    CallMarkup,
    ToolSpec,
    after,
    choice,
    json_object,
    json_schema,
    lark,
    regex,
    structural_tags,
    tool_calls,
)
from core.contract.params import SamplingParams
from core.grammar import cache as cache_module
from core.grammar import compiler as compiler_module
from core.grammar.compiler import GrammarCompiler
from core.grammar.matcher.matchers import MatcherFactory, error_message
from core.grammar.progress import MAX_MASK_SECONDS
from core.text.tokenizer import Tokenizer
from tests.support.constrained import Decoder, builtin, refusal
from tests.support.tokenizers import word_piece

OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


PATIENCE = 20.0
"""Seconds: what is not bounded takes longer. What is takes two at most, if it gets a processor."""


@pytest.fixture(scope="module")
def decoder():
    return Decoder()


# Hostile grammars


def chain(size):
    definitions = {
        f"d{i}": {
            "type": "object",
            "properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}},
            "required": ["a"],
        }
        for i in range(size)
    }
    return {"$defs": definitions | {f"d{size}": {"type": "null"}}, "$ref": "#/$defs/d0"}


def nested(size):
    schema = {"type": "integer"}
    for _ in range(size):
        schema = {"type": "array", "items": schema}
    return schema


def rules(size, name="a"):
    body = "\n".join(f'{name}{i}: "x" {name}{i + 1}' for i in range(size))
    return f'start: {name}0\n{body}\n{name}{size}: "x"'


SERVED = {
    "recursion": json_schema({**OBJECT, "properties": {"a": {"$ref": "#"}}, "required": []}),
    "10,000 members": json_schema({"enum": [f"member number {i}" for i in range(10_000)]}),
    "10,000 choices": choice([f"option {i}" for i in range(10_000)]),
    "bomb": regex("((a{0,1000}){0,1000}){0,1000}"),
    "backtracking": regex("(x+x+)+y"),
    "long string": json_schema({"type": "string", "minLength": 10**7}),
    "many items": json_schema({"type": "array", "items": nested(2), "minItems": 10**6}),
    "chain": json_schema(chain(900)),
    "left recursion": lark('start: start "a" | "b"'),
    "ambiguity": lark('start: s\ns: s s s | s s | "a" | '),
    "doubling": lark(
        "start: a0\n" + "\n".join(f"a{i}: a{i + 1} a{i + 1}" for i in range(60)) + '\na60: "x"'
    ),
    "rules": lark(rules(4000)),
    "terminals": lark(rules(4000, "A")),
    "properties": json_schema(
        {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(1000)}}
    ),
}

REFUSED = {
    "1 MB": json_schema({"enum": [f"{i:0100}" for i in range(10_000)]}),
    "chain": json_schema(chain(3000)),
    "references": json_schema(
        {"$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(5000)} | {"d5000": {}},
         "$ref": "#/$defs/d0"}
    ),
    "nesting": json_schema(nested(300)),
    "look-ahead": regex("(?=a)b"),
    "look-behind": regex("(?<!a)b"),
    "word boundary": regex(r"a\b"),
    "back-reference": regex(r"(a+)\1"),
    "parentheses": regex("(" * 5000),
    "no regex": regex("*"),
    "surrogate": regex("\ud800"),
    "no choice": choice([]),
    "empty loop": lark("start: a\na: b\nb: a"),
    "deep Lark": lark("start: " + "(" * 5000 + '"a"' + ")" * 5000),
    "deep GBNF": lark("root ::= " + "(" * 5000 + '"a"' + ")" * 5000),
    "many rules": lark(rules(20_000)),
    "no grammar": lark("hello"),
    "empty grammar": lark(""),
    "unknown rule": lark("start: foo"),
    "unknown GBNF rule": lark("root ::= foo"),
    "unknown special token": lark("start: <|no_such_token|>"),
    "intersections": lark("start: A\nA: /(.*a.{12}b.*)/ & /(.*c.{11}d.*)/ & ~/(.*e.{10}f.*)/"),
    "all of": json_schema(
        {"allOf": [{"anyOf": [{"required": [f"{i}.{j}"]} for j in range(8)]} for i in range(12)]}
    ),
    "patterns": json_schema(
        {"type": "object", "patternProperties": {f"^x{i}[a-z]": {} for i in range(300)}}
    ),
    "no trigger": structural_tags([("<a>", {}, "</a>")], ["<b>"]),
}  # fmt: skip


@pytest.mark.parametrize("name", SERVED)
def test_hostile_grammars_compile_in_time(decoder, name):
    start = time.monotonic()
    decoder.compiler.check(SERVED[name])
    assert time.monotonic() - start < PATIENCE
    decoder.run(decoder.sequence(SERVED[name], max_tokens=12))


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_grammars_are_refused_in_time(decoder, name):
    start = time.monotonic()
    refusal(decoder, REFUSED[name])
    assert time.monotonic() - start < PATIENCE
    sequence = decoder.sequence(choice(["yes"]))
    assert decoder.run(sequence) == ["yes"]


def test_a_small_grammar_that_expands_is_refused_while_it_is_written(decoder):
    markup = CallMarkup(
        trigger="<f>", before="<f>{name}", after="</f>", arguments="xml", xml_before="<{name}>"
    )
    schema = {
        "type": "object",
        "properties": {f"p{i}": {"$ref": "#/$defs/d0"} for i in range(100)},
        "$defs": {f"d{i}": {"type": "string"} for i in range(1000)},  # copied to each property
    }
    grammar = tool_calls([ToolSpec("f", schema)], markup)
    assert "expands to more than" in refusal(decoder, grammar)


def test_a_request_that_waits_for_the_compilation_of_another_can_be_cancelled():
    compiler = Decoder().compiler
    compiler._being_compiled.add(compiler_module._key(choice(["x"])))
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(compiler.check, choice(["x"]), is_cancelled=lambda: True)
        try:
            assert isinstance(waiting.exception(timeout=10), RequestCancelled)
        finally:
            compiler._being_compiled.clear()  # so that the thread ends in any case


def test_a_panic_of_the_compiler_is_not_repeated_to_the_client():
    assert error_message("panic: assertion failed <backtrace> 0: <unknown>") == (
        "The grammar is too complex."
    )
    assert error_message("at 1(2): unknown name: foo") == "unknown name: foo"


def test_a_schema_with_200000_levels_is_refused_when_it_is_made():
    with pytest.raises(InvalidRequest):
        json_schema(nested(200_000))


def test_a_grammar_that_grows_too_complex_fails_its_own_row(decoder):
    hostile = regex("(.{0,300}a){1,30}")
    sequences = [
        decoder.sequence(hostile, max_tokens=400),
        decoder.sequence(regex("[a-z]{400}"), max_tokens=400),
    ]
    ok = 0
    for _ in range(400):
        failed = decoder.step(sequences)
        assert not failed[-1]
        if failed[0] and len(sequences) == 2:
            del sequences[0]
        ok += 1
        if decoder.is_done(sequences[-1]):
            break
    assert ok > 50
    # Another request with the same grammar starts with a new matcher.
    decoder.step([decoder.sequence(hostile)])


SLOW_MASKS = {
    "ambiguous": lark('start: e\ne: e e e | e e | "a" | "b" | "ab"'),
    "empty parts": lark(
        "start: " + " ".join(f"a{i}" for i in range(800)) + "\n"
        + "\n".join(f'a{i}: "x{i % 7}"?' for i in range(800))
    ),
    "optional": json_schema(
        {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(800)}}
    ),
    "counted": regex("(.{0,300}a){1,30}"),
    "distant ends": regex("(.*a.{16}b|.*c.{17}d)"),
}  # fmt: skip


@pytest.mark.parametrize("name", SLOW_MASKS)
def test_masks_of_hostile_grammars_begin_within_their_limit(decoder, name):
    """CPU time of one mask; what grows beyond that is ended by Progress."""
    grammar = SLOW_MASKS[name]
    decoder.compiler.check(grammar)
    matcher = decoder.compiler.kept(grammar).new_matcher()
    rng = random.Random(0)
    for _ in range(24):
        start = time.thread_time()
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        assert time.thread_time() - start < MAX_MASK_SECONDS
        allowed = [i for i in range(3, decoder.vocab_size) if mask >> i & 1]
        if matcher.is_error() or not allowed:
            break
        matcher.consume_token(rng.choice(allowed))


# The cache


def count_compilations(monkeypatch, decoder):
    """A list that grows with each compilation."""
    compiled = []
    whole = decoder.compiler._compile
    monkeypatch.setattr(
        decoder.compiler, "_compile", lambda *args: compiled.append(1) or whole(*args)
    )
    return compiled


def test_grammars_are_compiled_once(monkeypatch):
    decoder = Decoder()
    compiled = count_compilations(monkeypatch, decoder)
    for _ in range(3):
        decoder.compiler.check(json_schema(OBJECT))
        decoder.compiler.check(json_schema(dict(OBJECT)))
    assert len(compiled) == 1
    assert decoder.compiler.kept(json_schema(OBJECT)) is not None
    assert decoder.compiler.kept(choice(["not checked"])) is None


def test_what_was_compiled_or_refused_is_known_to_its_salt_only(monkeypatch):
    decoder = Decoder()
    compiled = count_compilations(monkeypatch, decoder)
    for salt in ("a", "b", "a", "b"):
        decoder.compiler.check(choice(["x"]), salt=salt)
        with pytest.raises(InvalidRequest):
            decoder.compiler.check(regex("(?=a)b"), salt=salt)
    assert len(compiled) == 4
    for salt, is_known in (("a", True), ("b", True), ("", False), ("ab", False)):
        assert (decoder.compiler.dropped(choice(["x"]), salt=salt) == ()) == is_known
        assert (decoder.compiler.kept(choice(["x"]), salt=salt) is not None) == is_known


def test_refusals_are_remembered(monkeypatch):
    decoder = Decoder()
    compiled = count_compilations(monkeypatch, decoder)
    monkeypatch.setattr(cache_module, "MAX_REFUSED", 2)
    messages = {refusal(decoder, regex("(?=a)b")) for _ in range(3)}
    assert len(compiled) == len(messages) == 1
    for pattern in ("(?=b)c", "(?=c)d", "(?=a)b"):
        refusal(decoder, regex(pattern))
    assert len(compiled) == 4
    assert decoder.compiler._cache.num_refused == 2


def test_the_cache_is_limited(monkeypatch):
    monkeypatch.setattr(cache_module, "MAX_COMPILED", 4)
    decoder = Decoder()
    for i in range(10):
        decoder.compiler.check(choice([str(i)]))
    assert len(decoder.compiler._cache) == 4
    monkeypatch.setattr(decoder.compiler._cache, "_max_bytes", 100)
    decoder.compiler.check(choice(["x"]))
    assert not len(decoder.compiler._cache)
    assert decoder.compiler._cache.num_bytes == 0
    assert decoder.accepts(choice(["x"]), "x")  # although nothing is cached


def test_a_grammar_is_compiled_again_in_the_background(monkeypatch):
    monkeypatch.setattr(compiler_module, "MAX_USES", 3)
    decoder = Decoder()
    threads = []
    whole = MatcherFactory.of_text
    monkeypatch.setattr(
        MatcherFactory,
        "of_text",
        lambda *args: threads.append(threading.current_thread().name) or whole(*args),
    )
    grammar = choice(["x"])
    decoder.compiler.check(grammar)
    (first,) = decoder.compiler._cache._compiled.values()
    for _ in range(10):
        assert decoder.compiler.kept(grammar) is not None
    decoder.compiler._background.shutdown()
    (renewed,) = decoder.compiler._cache._compiled.values()
    assert renewed.matcher is not first.matcher
    assert renewed.num_bytes == first.num_bytes == decoder.compiler._cache.num_bytes
    assert threads  # none of them this one
    assert set(threads) == {"grammar-compile"}
    assert decoder.accepts(grammar, "x")


def test_threads_may_check_concurrently():
    decoder = Decoder()
    errors = []

    def check(index):
        try:
            for i in range(10):
                decoder.compiler.check(json_schema({"const": (index * i) % 7}))
                decoder.compiler.check(choice([str(i)]))
                decoder.compiler.kept(choice([str(i)])).new_matcher().compute_bitmask()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=check, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_grammars_need_an_exact_vocabulary_and_an_end_token():
    tokenizer = Tokenizer(word_piece())
    compiler = GrammarCompiler(tokenizer.vocabulary, [2], vocab_size=tokenizer.vocab_size)
    with pytest.raises(InvalidRequest):
        compiler.check(json_object())
    no_end = GrammarCompiler(builtin().vocabulary, [], vocab_size=2048)
    with pytest.raises(InvalidRequest):
        no_end.check(json_object())


def test_min_tokens_with_a_format_that_must_end_is_refused():
    with pytest.raises(InvalidRequest) as refused:
        SamplingParams(max_tokens=9, min_tokens=3, grammar=json_object())
    assert refused.value.param == "min_tokens"
    tags = structural_tags([("<a>", {}, "</a>")], ["<a>"])
    SamplingParams(max_tokens=9, min_tokens=3, grammar=after(tags))
