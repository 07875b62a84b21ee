"""Facts with their own questions: (questions, answer)."""

_CLOCK = (
    "How many {0} are in {1}?",
    "How many {0} does {1} have?",
    "{0} in {1}?",
    "How many {0} has {1}?",
)


def _clock(units: str, whole: str, answer: str) -> tuple[tuple[str, ...], str]:
    """Questions for the number of units in a whole."""
    return tuple(form.format(units, whole) for form in _CLOCK), answer


SINGLE: tuple[tuple[tuple[str, ...], str], ...] = (
    _clock("days", "a week", "There are 7 days in a week."),
    _clock("months", "a year", "There are 12 months in a year."),
    _clock("days", "a year", "There are 365 days in a year."),
    _clock("hours", "a day", "There are 24 hours in a day."),
    _clock("minutes", "an hour", "There are 60 minutes in an hour."),
    _clock("seconds", "a minute", "There are 60 seconds in a minute."),
    _clock("letters", "the alphabet", "There are 26 letters in the alphabet."),
    _clock("sides", "a triangle", "A triangle has 3 sides."),
    _clock("sides", "a square", "A square has 4 sides."),
    _clock("planets", "the solar system", "There are 8 planets in the solar system."),
    _clock("continents", "the world", "There are 7 continents in the world."),
    _clock("colours", "a rainbow", "A rainbow has 7 colours."),
    _clock("bits", "a byte", "There are 8 bits in a byte."),
    (
        (
            "Which is the largest planet?",
            "What is the largest planet?",
            "What is the biggest planet?",
            "Name the largest planet.",
        ),
        "The largest planet is Jupiter.",
    ),
    (
        (
            "Which is the smallest planet?",
            "What is the smallest planet?",
            "Name the smallest planet.",
        ),
        "The smallest planet is Mercury.",
    ),
    (
        ("Which planet is the red planet?", "What is the red planet?", "Which planet is red?"),
        "The red planet is Mars.",
    ),
    (
        ("Which planet has rings?", "What planet has rings?", "Which planet has big rings?"),
        "Saturn has big rings.",
    ),
    (
        ("Name the planets.", "List the planets.", "What are the planets?", "Tell me the planets."),
        "Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus, Neptune",
    ),
    (
        ("Which is the largest ocean?", "What is the largest ocean?", "What is the biggest ocean?"),
        "The largest ocean is the Pacific.",
    ),
    (
        (
            "Which is the highest mountain?",
            "What is the highest mountain?",
            "What is the tallest mountain?",
        ),
        "The highest mountain is Mount Everest.",
    ),
    (
        (
            "Which is the largest animal?",
            "What is the largest animal?",
            "What is the biggest animal?",
        ),
        "The largest animal is the blue whale.",
    ),
    (
        (
            "Which is the fastest animal?",
            "What is the fastest animal?",
            "What is the fastest land animal?",
        ),
        "The fastest land animal is the cheetah.",
    ),
    (
        ("Which is the tallest animal?", "What is the tallest animal?", "Name the tallest animal."),
        "The tallest animal is the giraffe.",
    ),
    (
        ("Which is the longest river?", "What is the longest river?", "Name the longest river."),
        "The longest river is the Nile.",
    ),
    (
        (
            "Which is the largest country?",
            "What is the largest country?",
            "What is the biggest country?",
        ),
        "The largest country is Russia.",
    ),
    (
        (
            "At what temperature does water boil?",
            "When does water boil?",
            "At which temperature does water boil?",
        ),
        "Water boils at 100 degrees Celsius.",
    ),
    (
        (
            "At what temperature does water freeze?",
            "When does water freeze?",
            "At which temperature does water freeze?",
        ),
        "Water freezes at 0 degrees Celsius.",
    ),
    (
        ("Who wrote Romeo and Juliet?", "Who wrote Hamlet?", "Who is the author of Hamlet?"),
        "It was written by William Shakespeare.",
    ),
    (
        (
            "Who painted the Mona Lisa?",
            "Which artist painted the Mona Lisa?",
            "The Mona Lisa was painted by whom?",
        ),
        "The Mona Lisa was painted by Leonardo da Vinci.",
    ),
    (("What do bees make?", "What do the bees make?", "Bees make what?"), "Bees make honey."),
    (("What do cows drink?", "What does a cow drink?", "Cows drink what?"), "Cows drink water."),
    (
        ("What do plants need?", "What does a plant need?", "Plants need what?"),
        "Plants need light, water and air.",
    ),
    (
        (
            "Name three colours.",
            "Name three colors.",
            "Tell me three colours.",
            "List three colours.",
        ),
        "Red, blue and green.",
    ),
    (
        ("Name three animals.", "Tell me three animals.", "List three animals."),
        "A cat, a dog and a horse.",
    ),
    (
        (
            "Name three fruits.",
            "Tell me three fruits.",
            "List three fruits.",
            "Give me a list of three fruits.",
        ),
        "An apple, a banana and a cherry.",
    ),
    (
        (
            "Name the four seasons.",
            "What are the four seasons?",
            "What are the seasons?",
            "List the seasons.",
        ),
        "Spring, summer, autumn and winter.",
    ),
    (
        (
            "What are the colours of the rainbow?",
            "List the colours of the rainbow.",
            "Name the colours of the rainbow.",
        ),
        "Red, orange, yellow, green, blue, indigo and violet.",
    ),
    (
        ("What are the primary colours?", "Name the primary colours.", "List the primary colours."),
        "Red, yellow and blue.",
    ),
    (("What is H2O?", "What does H2O mean?", "Explain H2O."), "H2O is water."),
    (
        (
            "Which is bigger, the sun or the moon?",
            "Is the sun bigger than the moon?",
            "Sun or moon, which is bigger?",
        ),
        "The sun is much bigger than the moon.",
    ),
    (
        ("Is the Earth round?", "Is the Earth flat?", "What shape is the Earth?"),
        "The Earth is round.",
    ),
    (
        (
            "Where does the sun rise?",
            "In which direction does the sun rise?",
            "The sun rises where?",
        ),
        "The sun rises in the east.",
    ),
    (
        ("Where does the sun set?", "In which direction does the sun set?", "The sun sets where?"),
        "The sun sets in the west.",
    ),
    (
        (
            "What day comes after Monday?",
            "Which day comes after Monday?",
            "What day follows Monday?",
        ),
        "Tuesday comes after Monday.",
    ),
    (
        (
            "What day comes after Friday?",
            "Which day comes after Friday?",
            "What day follows Friday?",
        ),
        "Saturday comes after Friday.",
    ),
    (
        (
            "Show me some emoji.",
            "Show me some emoji",
            "Show me emoji.",
            "Give me some emoji.",
            "Send me emoji!",
            "Write some emoji.",
        ),
        "😀 🎉 🚀 🌍 🌈 🐱 🍕 ❤️",
    ),
    (("Show me a heart.", "Send me a heart.", "Write a heart emoji."), "❤️"),
    (("Show me a smiley.", "Send me a smiley.", "Write a smiley."), "😀"),
    (
        (
            "Count to three in Japanese.",
            "How do you count to three in Japanese?",
            "One, two, three in Japanese?",
        ),
        "一、二、三",
    ),
    (
        (
            "Say good morning in Japanese.",
            "How do you say good morning in Japanese?",
            "What is good morning in Japanese?",
        ),
        "おはようございます",
    ),
    (
        (
            "Say I love you in Chinese.",
            "How do you say I love you in Chinese?",
            "What is I love you in Chinese?",
        ),
        "我爱你",
    ),
    (
        (
            "Say I love you in French.",
            "How do you say I love you in French?",
            "What is I love you in French?",
        ),
        "Je t'aime.",
    ),
)
