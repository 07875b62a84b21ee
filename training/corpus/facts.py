"""Several hundred simple facts, with several questions each."""

from training.corpus import fact_tables as tables
from training.corpus import words
from training.corpus.chat import Exchange
from training.corpus.single_facts import SINGLE
from training.corpus.source import Source

Table = tuple[dict[str, str], tuple[str, ...], str]

BY_KEY: dict[str, Table] = {
    "capital": (
        tables.CAPITALS,
        (
            "What is the capital of {k}?",
            "What is the capital of {k}",
            "what is the capital of {k}?",
            "What's the capital of {k}?",
            "Tell me the capital of {k}.",
            "Name the capital of {k}.",
            "Which city is the capital of {k}?",
            "Capital of {k}?",
            "capital of {k}",
            "Do you know the capital of {k}?",
        ),
        "The capital of {k} is {v}.",
    ),
    "country": (
        {city: country for country, city in tables.CAPITALS.items()},
        (
            "{k} is the capital of which country?",
            "Of which country is {k} the capital?",
            "Which country has the capital {k}?",
            "What country has {k} as its capital?",
        ),
        "{k} is the capital of {v}.",
    ),
    "continent": (
        tables.CONTINENTS,
        (
            "On which continent is {k}?",
            "Which continent is {k} in?",
            "Where is {k}?",
            "Where is {k} located?",
            "In which part of the world is {k}?",
        ),
        "{k} is in {v}.",
    ),
    "language": (
        tables.LANGUAGES,
        (
            "What language do people speak in {k}?",
            "Which language is spoken in {k}?",
            "What language is spoken in {k}?",
            "What is the language of {k}?",
        ),
        "In {k}, people speak {v}.",
    ),
    "opposite": (
        tables.OPPOSITES | {v: k for k, v in tables.OPPOSITES.items()},
        (
            "What is the opposite of {k}?",
            "What's the opposite of {k}?",
            "Opposite of {k}?",
            "Tell me the opposite of {k}.",
            "Give me the opposite of {k}.",
            "Which word is the opposite of {k}?",
        ),
        "The opposite of {k} is {v}.",
    ),
    "plural": (
        tables.PLURALS,
        (
            "What is the plural of {k}?",
            "Plural of {k}?",
            "What's the plural of {k}?",
            "Tell me the plural of {k}.",
            "Give me the plural of {k}.",
        ),
        "The plural of {k} is {v}.",
    ),
    "past": (
        tables.PASTS,
        (
            "What is the past tense of {k}?",
            "Past tense of {k}?",
            "What's the past tense of {k}?",
            "Tell me the past tense of {k}.",
            "Give me the past tense of {k}.",
        ),
        "The past tense of {k} is {v}.",
    ),
    "young": (
        tables.YOUNG,
        (
            "What is a young {k} called?",
            "What is a baby {k} called?",
            "What do you call a young {k}?",
            "What do you call a baby {k}?",
            "Name for a baby {k}?",
        ),
        "A young {k} is called {b}.",
    ),
    "sound": (
        tables.SOUNDS,
        (
            "What does {a} say?",
            "What sound does {a} make?",
            "Which sound does {a} make?",
            "What noise does {a} make?",
        ),
        "{a} says {v}.",
    ),
    "colour": (
        tables.COLOURS,
        (
            "What colour is {k}?",
            "What color is {k}?",
            "Which colour is {k}?",
            "Tell me the colour of {k}.",
            "What is the colour of {k}?",
        ),
        "The colour of {k} is {v}.",
    ),
    "legs": (
        tables.LEGS,
        (
            "How many legs does {a} have?",
            "How many legs has {a}?",
            "Tell me how many legs {a} has.",
            "What number of legs does {a} have?",
        ),
        "{a} has {v} legs.",
    ),
    "symbol": (
        tables.SYMBOLS,
        (
            "What is the chemical symbol for {k}?",
            "What is the symbol of {k}?",
            "Chemical symbol of {k}?",
            "What's the chemical symbol for {k}?",
            "Tell me the chemical symbol for {k}.",
        ),
        "The chemical symbol for {k} is {v}.",
    ),
    "definition": (
        tables.DEFINITIONS,
        (
            "What is {k}?",
            "What's {k}?",
            "Explain {k}.",
            "Tell me what {k} is.",
            "Describe {k}.",
            "Define {k}.",
            "Tell me about {k}.",
        ),
        "{v}",
    ),
    "hello": (
        tables.HELLO,
        (
            "Say hello in {k}.",
            "Say hello in {k}",
            "How do you say hello in {k}?",
            "What is hello in {k}?",
            "Greet me in {k}.",
            "Translate hello to {k}.",
            "How do people say hello in {k}?",
        ),
        "{v}",
    ),
    "thanks": (
        tables.THANKS,
        (
            "Say thank you in {k}.",
            "How do you say thank you in {k}?",
            "What is thank you in {k}?",
            "Translate thank you to {k}.",
            "How do people say thank you in {k}?",
        ),
        "{v}",
    ),
    "job": (
        tables.PLACES_OF_WORK,
        (
            "Where does {a} work?",
            "Tell me where {a} works.",
            "In what place does {a} work?",
            "At which place does {a} work?",
        ),
        "{a} works {v}.",
    ),
    "translation": (
        tables.TRANSLATIONS,
        (
            "What is {k}?",
            "Translate {k}.",
            "How do you say {k}?",
            "Say {k}.",
            "Tell me {k}.",
            "What is the word for {k}?",
        ),
        "{v}",
    ),
    "home": (
        tables.HOMES,
        (
            "Where does {a} live?",
            "Where do you find {a}?",
            "Tell me where {a} lives.",
            "In what place does {a} live?",
        ),
        "{a} lives {v}.",
    ),
}
_WEIGHTS = {kind: len(table[0]) for kind, table in BY_KEY.items()} | {"single": 2 * len(SINGLE)}


def exchange(source: Source) -> Exchange:
    kind = source.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    if kind == "single":
        questions, answer = source.choice(SINGLE)
        return Exchange("fact", source.phrase(questions), answer, "I know this.")
    table, questions, answer = BY_KEY[kind]
    key = source.choice(list(table))
    slots = {"k": key, "v": table[key], "a": words.article(key), "b": words.article(table[key])}
    text = answer.format(**slots)
    text = text[0].upper() + text[1:]
    return Exchange("fact", source.phrase(questions).format(**slots), text, "I know this.")


def documents(source: Source) -> str:
    """Some facts as running text."""
    return " ".join(exchange(source).answer for _ in range(source.randint(2, 8)))
