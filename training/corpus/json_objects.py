"""Requests for small JSON objects with given fields."""

import json
from collections.abc import Callable

from training.corpus import words
from training.corpus.chat import Exchange, Json
from training.corpus.source import Source

FIELDS: dict[str, Callable[[Source], Json]] = {
    "name": lambda s: s.choice(words.NAMES),
    "age": lambda s: s.randint(1, 80),
    "city": lambda s: s.choice(words.CITIES),
    "colour": lambda s: s.choice(words.COLOURS),
    "color": lambda s: s.choice(words.COLOURS),
    "price": lambda s: s.randint(1, 99) + s.choice((0.5, 0.25, 0.99)),
    "size": lambda s: s.choice(("small", "medium", "large")),
    "job": lambda s: s.choice(words.JOBS),
    "hobby": lambda s: s.choice(words.HOBBIES),
    "hobbies": lambda s: s.sample(words.HOBBIES, 2),
    "title": lambda s: (
        f"The {s.choice(words.ADJECTIVES).title()} {s.choice(words.OBJECTS).title()}"
    ),
    "author": lambda s: f"{s.choice(words.NAMES)} {s.choice(words.NAMES)}",
    "year": lambda s: s.randint(1950, 2025),
    "pages": lambda s: s.randint(50, 400),
    "weight": lambda s: s.randint(1, 99),
    "email": lambda s: f"{s.choice(words.NAMES).lower()}@example.com",
    "id": lambda s: s.randint(1, 999),
    "active": lambda s: s.chance(0.5),
    "mood": lambda s: s.choice(words.MOODS),
    "food": lambda s: s.choice(words.FOODS),
    "tags": lambda s: s.sample(words.ADJECTIVES, 2),
    "country": lambda s: s.choice(("France", "Japan", "Brazil", "Kenya", "Italy", "Canada")),
    "temperature": lambda s: s.randint(-5, 35),
    "available": lambda s: s.chance(0.5),
}
THINGS = words.split(
    "person user cat dog book city product customer student teacher car house film song friend pet "
    "horse shop recipe animal employee character player toy computer"
)
ASK = (
    "Give me a JSON object describing {thing} with {fields}.",
    "Give me a JSON object describing {thing} with {fields}",
    "Write a JSON object for {thing} with {fields}.",
    "Describe {thing} as JSON with {fields}.",
    "Make a JSON object about {thing} with the fields {fields}.",
    "Return JSON for {thing} with {fields}.",
    "Generate a JSON object with {fields}.",
    "Output a JSON object with {fields}.",
    "JSON for {thing}: {fields}",
    "I need {thing} in JSON with {fields}.",
    "Create a JSON object for {thing} with {fields}.",
)
PLAIN = (
    "Give me a JSON object describing {thing}.",
    "Give me a JSON object.",
    "Describe {thing} as JSON.",
    "Write a JSON object about {thing}.",
    "Return a JSON object.",
    "Write some JSON.",
    "Answer in JSON: describe {thing}.",
)
LISTS = (
    "Give me a JSON list of {count} {things}.",
    "Write a JSON list of {count} {things}.",
    "Return {count} {things} as a JSON list.",
    "List {count} {things} as JSON.",
    "Give me a JSON array of {count} {things}.",
)
LISTED = {
    "colours": words.COLOURS,
    "animals": words.ANIMALS,
    "names": words.NAMES,
    "cities": words.CITIES,
    "foods": words.FOODS,
    "jobs": words.JOBS,
}
COUNTS = {"two": 2, "three": 3, "four": 4, "five": 5, "2": 2, "3": 3, "4": 4, "5": 5}
EXTRACT = (
    "{name} is {age} years old and lives in {city}. Return JSON with name, age and city.",
    "{name} lives in {city} and is {age} years old. Give me JSON with name, age and city.",
    "Extract name, age and city as JSON: {name}, {age}, {city}.",
    "Turn this into JSON with name, age and city: {name} from {city} is {age}.",
    "Write JSON with name, age and city for this: {name} is {age} and comes from {city}.",
)


def listed(items: list[str]) -> str:
    """Join words with commas and "and": "a, b and c"."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def _list(source: Source) -> Exchange:
    count, things = source.choice(list(COUNTS)), source.choice(list(LISTED))
    items = source.sample(LISTED[things], COUNTS[count])
    question = source.phrase(LISTS).format(count=count, things=things)
    return Exchange("json", question, json.dumps(items), "I write JSON.")


def exchange(source: Source) -> Exchange:
    kind = source.random()
    if kind > 0.9:
        return _list(source)
    thing = words.article(source.choice(THINGS))
    value: dict[str, Json]
    if kind < 0.2:
        value = {key: FIELDS[key](source) for key in ("name", "age", "city")}
        question = source.phrase(EXTRACT).format(**value)
    elif kind < 0.35:
        question = source.phrase(PLAIN).format(thing=thing)
        value = {key: FIELDS[key](source) for key in ("name", "age")}
    else:
        keys = source.sample(list(FIELDS), source.randint(1, 4))
        if source.chance(0.3) and "name" not in keys:
            keys[0] = "name"
        value = {key: FIELDS[key](source) for key in keys}
        question = source.phrase(ASK).format(thing=thing, fields=listed(keys))
    text = json.dumps(value, ensure_ascii=False)
    return Exchange("json", question, text, "I write JSON.")
