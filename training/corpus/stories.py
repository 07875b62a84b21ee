"""Short and long stories, composed of random sentences with slots."""

from training.corpus import words
from training.corpus.chat import Exchange
from training.corpus.source import Source

OPENINGS = (
    (
        "Once upon a time, there was a {mood} little {animal} named {name} who lived {near} the "
        "{place}."
    ),
    "Once upon a time, a {mood} {animal} called {name} lived {near} {a_colour} {place}.",
    "Long ago, {near} a quiet {place}, there lived {an_animal} whose name was {name}.",
    "Once there was a young {animal} named {name}. {name} was very {mood} and loved the {place}.",
    "In a small house {near} the {place} lived {name}, a {mood} {animal} with {a_colour} scarf.",
)
EVENTS = (
    "One morning, {name} found {a_colour} {object} under a tree.",
    "One day, {name} went for a walk and saw a shiny {object} in the grass.",
    "The {object} began to glow, and {name} was very surprised.",
    '"What a strange {object}!" said {name}. "Who could have lost it?"',
    "{name} asked a {animal2} for help, but the {animal2} only shook its head.",
    "Then {an_adjective} {animal2} named {name2} came along the path.",
    '"Please come with me to the {place2}," said {name2}. "I know somebody who can help."',
    "Together they walked over the hills until they reached the {place2}.",
    "Suddenly it began to rain, and the two friends hid under {an_adjective} {object2}.",
    "They were hungry, so they shared some {food} and told each other stories.",
    "In the {place2} they met an old {animal3} who had lost {an_object}.",
    "The old {animal3} smiled and gave them {a_colour2} {object2}.",
    '{name} was {mood2} at first, but {name2} said, "Do not worry, we are together."',
    "At night they looked at the stars and counted them one by one.",
    "A sudden wind blew through the {place2}, and the leaves began to dance.",
    "{name2} sang a song about the {place}, and soon everybody was singing.",
    "On the way home they helped a little {animal3} who could not find its mother.",
    "The {animal3} thanked them and promised to visit them soon.",
    "They built a small boat and sailed down the river to the {place2}.",
    "Behind the {place2} there was a door, and the {colour2} {object2} opened it.",
    "Inside they found {an_adjective} room full of {food} and {colour} flowers.",
    "{name} took a deep breath and knocked three times.",
    '"Who is there?" asked {an_adjective} voice from behind the door.',
    '"It is only me, {name} the {animal}," was the answer.',
)
FOUND, MET = 0, 5
"""The events that introduce the object and the second character; other events refer to them."""

ENDINGS = (
    "From that day on, {name} and {name2} were the best of friends.",
    "And so they all lived happily ever after.",
    "{name} went home, tired but very happy, and slept until the morning.",
    "In the end, {name} learned that a good friend is worth more than {an_object}.",
    "That evening they all ate {food} together, and nobody was {mood2} any more.",
)
REQUESTS = (
    "Tell me a story.",
    "Tell me a story",
    "Tell me a short story.",
    "Write a short story.",
    "Write a little story.",
    "Can you tell me a story?",
    "Please tell me a story.",
    "I would like to hear a story.",
    "Write a story, please.",
)
ABOUT = (
    "Tell me a story about {an_animal}.",
    "Write a story about {an_animal}.",
    "Write a short story about {an_animal} named {name}.",
    "Tell me a story about {an_animal} called {name}.",
    "Can you write a story about {an_animal}?",
    "Please tell me a little story about {an_animal} and {an_object}.",
    "Tell me a story about {name} and {name2}.",
    "Tell me a story about {an_object}.",
    "Write a story about {an_object} and a {place}.",
    "Write a story about {name}.",
    "Tell me a short story about {an_animal}.",
    "Write a story about {an_animal} who lives in the {place}.",
)
LONG = (
    "Tell me a long story.",
    "Tell me a long story",
    "Write a long story.",
    "Please write a long story for me.",
    "Can you tell me a very long story?",
    "I would like to hear a long story.",
)


def story(source: Source, slots: dict[str, str], events: int) -> str:
    """A story with this many events, in paragraphs if it is long."""
    needed = {FOUND, MET} if events > 1 else {MET}
    others = [i for i in range(len(EVENTS)) if i not in needed]
    chosen = [EVENTS[i] for i in sorted(needed | set(source.sample(others, events - len(needed))))]
    lines = [source.choice(OPENINGS), *chosen, source.choice(ENDINGS)]
    parts = []
    for index, line in enumerate(lines):
        parts.append(line.format(**slots))
        if index < len(lines) - 1:
            parts.append("\n\n" if events > 6 and index % 5 == 4 else " ")
    return "".join(parts)


def slots_for(source: Source) -> dict[str, str]:
    """Random characters, places and objects, by slot."""
    animals = source.sample(words.ANIMALS, 3)
    names = source.sample(words.NAMES, 2)
    places = source.sample(words.PLACES, 2)
    objects = source.sample(words.OBJECTS, 2)
    colours = source.sample(words.COLOURS, 2)
    adjective = source.choice(words.ADJECTIVES)
    moods = source.sample(words.MOODS, 2)
    return {
        "animal": animals[0],
        "animal2": animals[1],
        "animal3": animals[2],
        "name": names[0],
        "name2": names[1],
        "place": places[0],
        "place2": places[1],
        "an_animal": words.article(animals[0]),
        "an_object": words.article(objects[0]),
        "object": objects[0],
        "object2": objects[1],
        "a_colour": words.article(colours[0]),
        "a_colour2": words.article(colours[1]),
        "colour": colours[0],
        "colour2": colours[1],
        "mood": moods[0],
        "mood2": moods[1],
        "adjective": adjective,
        "an_adjective": words.article(adjective),
        "food": source.choice(words.FOODS),
        "near": source.choice(("near", "beside")),
    }


def exchange(source: Source) -> Exchange:
    slots = slots_for(source)
    kind = source.random()
    if kind < 0.15:
        return Exchange("story", source.phrase(LONG), story(source, slots, source.randint(12, 16)))
    requests = ABOUT if kind < 0.6 else REQUESTS
    request = source.phrase(requests).format(**slots)
    return Exchange("story", request, story(source, slots, source.randint(2, 5)), "I make one up.")
