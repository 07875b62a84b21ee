"""Mixes the skills by their weights and builds conversations from exchanges."""

from collections.abc import Callable
from dataclasses import replace

from training.corpus import (
    arithmetic,
    copying,
    counting,
    documents,
    facts,
    json_objects,
    stories,
    talk,
    tools,
    unknown,
)
from training.corpus.chat import Conversation, Document, Exchange, Message, assistant, system, user
from training.corpus.source import Source

SKILLS: tuple[tuple[Callable[[Source], Exchange], float], ...] = (
    (talk.exchange, 10),
    (facts.exchange, 30),
    (arithmetic.exchange, 22),
    (counting.exchange, 9),
    (stories.exchange, 5),
    (json_objects.exchange, 10),
    (copying.exchange, 12),
    (unknown.exchange, 2),
)
LITERAL = ("repeat", "json")
"""Skills whose answers copy from the question, so the question stays unchanged."""

SYSTEMS = (
    "You are a helpful assistant.",
    "You are a helpful assistant",
    "You are a kind and helpful assistant.",
    "You are Rose, a helpful assistant.",
    "Answer briefly.",
    "Be concise.",
    "You are a friendly assistant. Answer the questions of the user.",
    "You are a test assistant.",
    "Answer the user politely.",
)
_MAKERS = [maker for maker, _ in SKILLS]
_WEIGHTS = [weight for _, weight in SKILLS]


def exchange(source: Source) -> Exchange:
    """A random exchange of one of the skills."""
    drawn = source.choices(_MAKERS, _WEIGHTS)[0](source)
    if drawn.skill in LITERAL:
        return drawn
    return replace(drawn, question=casual(source, drawn.question))


def casual(source: Source, question: str) -> str:
    """Sometimes drop the full stop or the capital letters of a question."""
    if source.chance(0.12):
        question = question.rstrip(".?!") or question
    if source.chance(0.08):
        question = question[0].lower() + question[1:]
    if source.chance(0.05):
        question = question.lower()
    return question


def conversation(source: Source) -> Conversation:
    """A conversation of one to four exchanges, rarely of twenty."""
    messages: list[Message] = []
    if source.chance(0.3):
        messages.append(system(source.phrase(SYSTEMS)))
    turns = source.choices((1, 2, 3, 4, 20), (58, 20, 12, 9, 1))[0]
    last = None
    for index in range(turns):
        last = exchange(source)
        answer = last.answer
        if index == turns - 1 and last.thought and source.chance(0.08):
            answer = f"<think>\n{last.thought}\n</think>\n\n{answer}"
        messages += [user(last.question), assistant(answer)]
    return Conversation(last.skill if last and turns == 1 else "dialogue", messages)


def example(source: Source) -> Conversation | Document:
    kind = source.random()
    if kind < 0.26:
        return tools.conversation(source, exchange)
    if kind < 0.32:
        if source.chance(0.2):
            return copying.renamed(source)
        return copying.memory(source, exchange(source) if source.chance(0.4) else None)
    if kind < 0.38:
        return documents.document(source)
    return conversation(source)
