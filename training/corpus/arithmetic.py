"""Addition, subtraction, multiplication and comparison of small numbers."""

from training.corpus.chat import Exchange
from training.corpus.source import Source

ASK = (
    "What is {0}?",
    "What is {0}",
    "{0}",
    "{0} =",
    "{0}=",
    "{0}?",
    "Calculate {0}.",
    "How much is {0}?",
    "Compute {0}",
    "What's {0}?",
    "Tell me {0}.",
)
ADD = ("{a} + {b}", "{a}+{b}", "{a} plus {b}")
SUBTRACT = ("{a} - {b}", "{a}-{b}", "{a} minus {b}")
MULTIPLY = ("{a} * {b}", "{a} x {b}", "{a} times {b}")


def is_held_out(a: int, b: int) -> bool:
    """Whether a pair is reserved for the held-out text: one in twenty of the larger pairs."""
    return a > 12 and b > 12 and (7 * a + 3 * b) % 20 == 0


def _pair(source: Source, limit: int) -> tuple[int, int]:
    """Two random numbers; larger pairs are held out in held-out text and only there."""
    while True:
        top = 10 if limit > 10 and source.chance(0.35) else limit
        a, b = source.randint(0, top), source.randint(0, top)
        if top <= 12 or is_held_out(a, b) == source.held_out:
            return a, b


COMPARE = (
    "Which is bigger, {a} or {b}?",
    "Which number is bigger: {a} or {b}?",
    "What is bigger, {a} or {b}?",
    "Is {a} bigger than {b}?",
    "Which is larger, {a} or {b}?",
)


def _compare(source: Source) -> Exchange:
    a, b = source.sample(range(100), 2)
    question = source.phrase(COMPARE).format(a=a, b=b)
    return Exchange(
        "arithmetic", question, f"{max(a, b)} is bigger than {min(a, b)}.", "I compare them."
    )


def exchange(source: Source) -> Exchange:
    kind = source.random()
    if kind > 0.96:
        return _compare(source)
    if kind < 0.65:
        a, b = _pair(source, 99)
        form, sign, value = source.choice(ADD), "+", a + b
    elif kind < 0.85:
        a, b = sorted(_pair(source, 60), reverse=True)
        form, sign, value = source.choice(SUBTRACT), "-", a - b
    else:
        a, b = source.randint(0, 10), source.randint(0, 10)
        form, sign, value = source.choice(MULTIPLY), "*", a * b
    question = source.choice(ASK).format(form.format(a=a, b=b))
    return Exchange("arithmetic", question, f"{a} {sign} {b} = {value}", "I compute it.")
