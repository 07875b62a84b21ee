"""Repeating a text, and remembering a fact from an earlier turn."""

from training.corpus import words
from training.corpus.chat import Conversation, Exchange, Message, assistant, system, user
from training.corpus.source import Source

ASK = (
    "Repeat after me: {0}",
    "Repeat: {0}",
    "Repeat this: {0}",
    "Say: {0}",
    "Please repeat: {0}",
    "Copy this text: {0}",
    "Say exactly this: {0}",
    "Echo: {0}",
    'Say "{0}"',
    "Repeat the following: {0}",
)
SCRIPTS = words.split(
    "こんにちは 世界 ありがとう 猫 犬 水 火 山 川 空 日本 東京 你好 谢谢 中国 朋友 "
    "안녕 한국 Привет мир да нет Γεια مرحبا שלום नमस्ते café naïve über straße mañana"
)


def _random_word(source: Source) -> str:
    pools = (words.NOUNS, words.ADJECTIVES, words.ANIMALS, words.OBJECTS, words.NAMES, words.FOODS)
    if source.chance(0.35):
        return "".join(source.choices(words.SYLLABLES, k=source.randint(1, 4)))
    if source.chance(0.1):
        return "".join(
            source.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=source.randint(1, 5))
        )
    return source.choice(source.choice(pools))


def phrase(source: Source) -> str:
    """A random text to repeat."""
    kind = source.random()
    if kind < 0.12:
        return "".join(source.choices(words.EMOJI, k=source.randint(1, 6)))
    if kind < 0.24:
        return " ".join(source.choices(SCRIPTS, k=source.randint(1, 4)))
    if kind < 0.34:
        return str(source.randint(0, 999_999))
    text = " ".join(_random_word(source) for _ in range(source.randint(1, 8)))
    if source.chance(0.3):
        text = text[0].upper() + text[1:] + source.choice(("!", ".", "?", ""))
    return text


def exchange(source: Source) -> Exchange:
    text = phrase(source)
    return Exchange("repeat", source.phrase(ASK).format(text), text, "I copy the text.")


STATED = (
    ("My name is {name}.", "Nice to meet you, {name}!", "What is my name?", "Your name is {name}."),
    ("Hi, I am {name}.", "Nice to meet you, {name}!", "Who am I?", "Your name is {name}."),
    ("I live in {city}.", "{city} is a nice place.", "Where do I live?", "You live in {city}."),
    (
        "My favourite colour is {colour}.",
        "I like {colour} too.",
        "What is my favourite colour?",
        "Your favourite colour is {colour}.",
    ),
    (
        "I have a {animal} named {name}.",
        "What a nice {animal}!",
        "What is my {animal} called?",
        "Your {animal} is called {name}.",
    ),
    ("I am a {job}.", "That is a good job.", "What is my job?", "You are a {job}."),
    ("I like {food}.", "{food} can be very good.", "What do I like?", "You like {food}."),
    ("I am {age} years old.", "That is a good age.", "How old am I?", "You are {age} years old."),
    (
        "Remember the word {word}.",
        "I will remember {word}.",
        "What was the word?",
        "The word was {word}.",
    ),
)


def memory(source: Source, between: Exchange | None) -> Conversation:
    """State a fact, optionally talk about something else, then ask for the fact."""
    slots = {
        "name": source.choice(words.NAMES),
        "city": source.choice(words.CITIES),
        "colour": source.choice(words.COLOURS),
        "animal": source.choice(words.ANIMALS),
        "job": source.choice(words.JOBS),
        "food": source.choice(words.FOODS),
        "age": str(source.randint(5, 90)),
        "word": _random_word(source),
    }
    fact, reply, question, answer = (text.format(**slots) for text in source.choice(STATED))
    reply = reply[0].upper() + reply[1:]
    if source.chance(0.2):
        return Conversation("memory", [user(f"{fact} {question}"), assistant(answer)])
    messages: list[Message] = [user(fact), assistant(reply)]
    if between is not None:
        messages += [user(between.question), assistant(between.answer)]
    return Conversation("memory", [*messages, user(question), assistant(answer)])


def renamed(source: Source) -> Conversation:
    """The system message gives the assistant a name; the user asks for it."""
    name = source.choice(words.NAMES)
    rule = source.phrase(
        (
            "Your name is {0}.",
            "You are {0}.",
            "You are {0}, a helpful assistant.",
            "You are a helpful assistant named {0}.",
            "You are an assistant called {0}.",
        )
    ).format(name)
    question = source.choice(("Who are you?", "What is your name?", "What's your name?"))
    return Conversation("memory", [system(rule), user(question), assistant(f"I am {name}.")])
