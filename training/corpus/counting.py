"""Counting up, down and in steps; lists of days, months and letters."""

from training.corpus import words
from training.corpus.chat import Exchange
from training.corpus.source import Source

UP = (
    "Count from {a} to {b}.",
    "Count from {a} to {b}",
    "count from {a} to {b}",
    "Please count from {a} to {b}.",
    "Write the numbers from {a} to {b}.",
    "List the numbers from {a} to {b}.",
    "Can you count from {a} to {b}?",
)
TO = ("Count to {b}.", "Count to {b}", "Please count to {b}.", "Can you count to {b}?")
DOWN = (
    "Count down from {b} to {a}.",
    "Count from {b} down to {a}.",
    "Count backwards from {b} to {a}.",
    "Please count down from {b} to {a}.",
)
STEP = (
    "Count from {a} to {b} in steps of {step}.",
    "Count by {step} from {a} to {b}.",
    "Count in steps of {step} from {a} to {b}.",
)
NEXT = ("What comes after {a}?", "Which number comes after {a}?", "What number follows {a}?")
BEFORE = ("What comes before {a}?", "Which number comes before {a}?", "What number precedes {a}?")
DAYS = words.split("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = words.split(
    "January February March April May June July August September October November December"
)
LETTERS = words.split("A B C D E F G H I J K L M N O P Q R S T U V W X Y Z")
LISTS: tuple[tuple[list[str], tuple[str, ...]], ...] = (
    (
        DAYS,
        (
            "Name the days of the week.",
            "List the days of the week.",
            "What are the days of the week?",
            "Tell me the days of the week.",
        ),
    ),
    (
        MONTHS,
        (
            "Name the months of the year.",
            "List the months of the year.",
            "What are the months?",
            "List the months.",
            "Tell me the months of the year.",
        ),
    ),
    (
        LETTERS,
        (
            "Say the alphabet.",
            "Write the alphabet.",
            "What are the letters of the alphabet?",
            "List the letters of the alphabet.",
        ),
    ),
)


def _numbers(values: range) -> str:
    return ", ".join(str(value) for value in values)


def exchange(source: Source) -> Exchange:
    kind = source.random()
    if kind < 0.45:
        to_only = source.chance(0.3)
        a = 1 if to_only or source.chance(0.5) else source.randint(0, 60)
        b = a + source.choice((source.randint(2, 12), source.randint(2, 30), 9, 19, 49, 99))
        question, answer = source.phrase(TO if to_only else UP), _numbers(range(a, b + 1))
        question = question.format(a=a, b=b)
    elif kind < 0.6:
        a = source.choice((0, 1, 1, source.randint(0, 30)))
        b = a + source.randint(3, 20)
        question = source.phrase(DOWN).format(a=a, b=b)
        answer = _numbers(range(b, a - 1, -1))
    elif kind < 0.7:
        step = source.choice((2, 2, 3, 5, 5, 10))
        a = source.choice((0, step))
        b = a + step * source.randint(3, 10)
        question = source.phrase(STEP).format(a=a, b=b, step=step)
        answer = _numbers(range(a, b + 1, step))
    elif kind < 0.85:
        a = source.randint(1, 99)
        after = source.chance(0.5)
        question = source.phrase(NEXT if after else BEFORE).format(a=a)
        answer = f"{a + 1} comes after {a}." if after else f"{a - 1} comes before {a}."
    else:
        items, questions = source.choice(LISTS)
        question, answer = source.phrase(questions), ", ".join(items)
    return Exchange("counting", question, answer, "I go step by step.")
