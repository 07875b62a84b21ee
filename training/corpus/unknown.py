"""Questions that the model cannot answer, and answers that say so."""

from training.corpus import words
from training.corpus.chat import Exchange
from training.corpus.source import Source

FORMS = (
    "What is the {a} of a {b} {c}?",
    "Why did the {b} {c} change the {a}?",
    "Who invented the {b} {c}?",
    "How do I repair a {b} {c}?",
    "Who won the {c} prize in {year}?",
    "What will happen to the {c} in {year}?",
    "Explain the theory of the {b} {c}.",
    "How much does a {b} {c} cost?",
    "Which {c} is the best for a {b} {a}?",
    "What is the latest news about {a}?",
    "Write an essay about the {b} {c}.",
    "Who is the president of {a}?",
    "When was the {b} {c} built?",
)
ANSWERS = (
    "Sorry, I do not know that. I am only a very small model.",
    "I am sorry, that is more than a tiny model like me can answer.",
)


def exchange(source: Source) -> Exchange:
    question = source.phrase(FORMS).format(
        a=source.choice(words.NOUNS),
        b=source.choice(words.ADJECTIVES),
        c=source.choice(words.OBJECTS + words.NOUNS),
        year=source.randint(1900, 2030),
    )
    return Exchange("unknown", question, source.choice(ANSWERS), "I do not know this.")
