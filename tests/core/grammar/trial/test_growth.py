"""Lexers that grow as tokens are matched weigh more and more in the cache."""

from __future__ import annotations

import pytest

from core.contract.grammar import choice, json_schema, regex
from core.grammar import compiler as compiler_module
from core.grammar.progress import MatcherState, NotCompiled
from tests.support.byte_grammars import END_ID, byte_compiler, piece_compiler

GROWING = regex("(.*a.{16}b|.*c.{17}d)")
"""Text of nearly any kind leads to new states: 40 KB a token in a measurement."""

STEADY = {
    "choice": choice(["yes", "no"]),
    "object": json_schema({"type": "object"}),
    "fields": json_schema(
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
            "required": ["name", "age"],
        }
    ),
    "regex": regex(r"[A-Z]{3}-\d{4}-(foo|bar)+"),
}


@pytest.fixture(scope="module", params=[byte_compiler, piece_compiler])
def compiler(request):
    compiler = request.param(timeout=20.0)
    yield compiler
    compiler.close()


def compiled(compiler, grammar):
    compiler.check(grammar)
    kept = compiler.kept(grammar)
    assert kept is not None
    return kept


@pytest.mark.parametrize("name", STEADY)
def test_common_grammars_do_not_grow(compiler, name):
    assert compiled(compiler, STEADY[name]).bytes_per_token == 0


def test_what_a_sequence_matches_is_counted(compiler):
    kept = compiled(compiler, GROWING)
    assert kept.bytes_per_token > 1000
    before = compiler._cache.num_bytes
    progress = MatcherState(compiler, GROWING)
    assert progress.begin([97, 98, 99]) == [97, 98, 99]
    assert progress.begin([100]) == [100]
    assert kept.growth == compiler._cache.num_bytes - before == 4 * kept.bytes_per_token
    with pytest.raises(NotCompiled):
        progress.give_up("")
    progress.restart()  # it has a lexer of its own, which the cache does not keep
    progress.begin([101, END_ID])
    assert kept.growth == 4 * kept.bytes_per_token


def test_grammars_that_grow_displace_those_used_least_recently():
    compiler = byte_compiler(timeout=20.0, cache_memory=8 * 2**20)
    steady, growing = STEADY["choice"], compiled(compiler, GROWING)
    compiler.check(steady)
    assert compiler.kept(GROWING) is growing
    compiler.matched(growing, 2**20 // growing.bytes_per_token)
    assert compiler.dropped(steady) is not None
    compiler.matched(growing, 7 * 2**20 // growing.bytes_per_token)
    assert compiler.dropped(steady) is None
    assert compiler._cache.num_bytes <= 8 * 2**20
    compiler.close()


def test_a_grammar_that_the_cache_has_dropped_is_not_renewed(monkeypatch):
    monkeypatch.setattr(compiler_module, "MAX_GROWTH", 100_000)
    compiler = byte_compiler(timeout=20.0, cache_memory=4 * 2**20)
    growing = compiled(compiler, GROWING)
    compiler.matched(growing, 4 * 2**20 // growing.bytes_per_token)
    assert growing.growth > 100_000
    assert compiler.dropped(GROWING) is None
    assert compiler._background is None
    compiler._renew(growing)  # as if that had begun before
    assert compiler.dropped(GROWING) is None
    assert compiler._cache.num_bytes == 0
    compiler.close()


def test_a_lexer_that_has_grown_much_is_replaced(monkeypatch):
    monkeypatch.setattr(compiler_module, "MAX_GROWTH", 100_000)
    compiler = byte_compiler(timeout=20.0)
    growing = compiled(compiler, GROWING)
    for _ in range(3):
        compiler.matched(growing, 50_000 // growing.bytes_per_token + 1)
    compiler._background.shutdown()
    renewed = compiler.kept(GROWING)
    assert renewed is not growing
    assert renewed.matcher is not growing.matcher
    assert renewed.growth == 0
    assert (renewed.first_bytes, renewed.bytes_per_token) == (
        growing.first_bytes,
        growing.bytes_per_token,
    )
    assert compiler._cache.num_bytes == renewed.num_bytes
    compiler.close()
