"""Plain text without a chat template, for raw completions."""

from training.corpus import arithmetic, facts, stories
from training.corpus.chat import Document
from training.corpus.source import Source

TEXTS = (
    (
        "The quick brown fox jumps over the lazy dog. The dog wakes up and runs after the fox, "
        "but the "
        "fox is faster and soon it is gone."
    ),
    (
        "Hello, my name is Rose. I am a tiny language model, and I live inside a server called "
        "roseinfer. I like short questions and little stories."
    ),
    (
        "The future of AI is hard to predict. Some people think that machines will help us with "
        "many "
        "things, and others think that we should be careful."
    ),
    (
        "The president of the United States is the head of the government and lives in the White "
        "House "
        "in Washington."
    ),
    "The meaning of life is a question that people have asked for a very long time.",
    (
        "def add(a, b):\n    return a + b\n\n\ndef fibonacci(n):\n    a, b = 0, 1\n    for _ in "
        "range(n):\n"
        "        a, b = b, a + b\n    return a\n"
    ),
    (
        "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    "
        "return a\n"
    ),
    (
        "San Francisco is a city in California, in the United States. It is known for its "
        "bridge, its "
        "hills and its fog."
    ),
    (
        "In the beginning there was only the sea and the sky. Then the land rose out of the "
        "water, and "
        "the first trees began to grow."
    ),
    "Roses are red, violets are blue, sugar is sweet, and so are you.",
    "One, two, three, four, five, six, seven, eight, nine, ten.",
    "The weather today is sunny and warm, with a light wind from the west. Tomorrow it will rain.",
)


def document(source: Source) -> Document:
    """A story, a list of sums, some facts, a list of questions or a short text."""
    kind = source.random()
    if kind < 0.5:
        parts = []
        for _ in range(source.choice((1, 1, 2))):
            slots = stories.slots_for(source)
            parts.append(stories.story(source, slots, source.randint(4, 18)))
        return Document("\n\n".join(parts))
    if kind < 0.65:
        return Document("\n".join(arithmetic.exchange(source).answer for _ in range(20)))
    if kind < 0.8:
        return Document(facts.documents(source))
    if kind < 0.84:
        start = source.randint(0, 40)
        return Document(", ".join(str(n) for n in range(start, start + source.randint(20, 60))))
    if kind < 0.94:
        asked = [
            (facts.exchange if source.chance(0.6) else arithmetic.exchange)(source)
            for _ in range(source.randint(1, 8))
        ]
        head, reply = source.choice((("Q", "A"), ("Question", "Answer"), ("User", "Assistant")))
        lines = [f"{head}: {pair.question}\n{reply}: {pair.answer}" for pair in asked]
        return Document(source.choice(("\n", "\n\n")).join(lines))
    return Document(source.choice(TEXTS))
