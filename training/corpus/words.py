"""Word lists of the generators."""


def split(text: str) -> list[str]:
    return text.split()


def article(word: str) -> str:
    """Put "a" or "an" before a word."""
    return f"an {word}" if word[0].lower() in "aeio" else f"a {word}"


NAMES = split(
    "Anna Ben Clara David Emma Felix Grace Hugo Ida Jack Kate Leo Mia Noah Olga Paul Rosa Sam Tina "
    "Victor Wendy Alice Bob Carol Dan Ella Finn Greta Henry Iris Jonas Kira Lucas Mary Nina Oscar "
    "Petra Quinn Ruth Simon Tom Uma Vera Walter Zoe Amir Chen Diego Elif Fatima Jamal Kenji Layla "
    "Mateo Priya Ravi Sofia Yuki Max Lily Lucy John Peter Maria Eva Adam Julia Robert Karl"
)
ANIMALS = split(
    "cat dog rabbit fox bear mouse owl duck frog horse cow sheep goat pig hen lion tiger elephant "
    "monkey penguin turtle squirrel hedgehog deer wolf whale dolphin bee ant parrot"
)
PLACES = split(
    "forest garden village river mountain beach meadow island city castle cave farm lake valley "
    "desert market library school harbour park"
)
OBJECTS = split(
    "key lamp book map boat kite drum bell coin ring hat box cup apple cake ball basket flute star "
    "stone feather letter clock blanket lantern button mirror rope shell seed"
)
COLOURS = split("red blue green yellow white black orange purple pink brown grey golden silver")
MOODS = split("happy sad brave shy kind curious tired hungry lonely clever quiet proud")
CITIES = [
    *split(
        "Paris London Berlin Madrid Rome Vienna Prague Oslo Lisbon Dublin Athens Warsaw Budapest "
        "Tokyo "
        "Beijing Seoul Delhi Mumbai Cairo Nairobi Lagos Toronto Chicago Boston Seattle Denver "
        "Miami "
        "Lima Quito Bogota Sydney Melbourne Auckland Hamburg Munich Lyon Milan Naples Porto "
        "Seville "
        "Zurich Geneva Brussels Antwerp Helsinki Stockholm Copenhagen Kyoto Osaka Bangkok Hanoi "
        "Jakarta"
    ),
    "New York",
    "San Francisco",
    "Los Angeles",
    "Mexico City",
    "Cape Town",
    "Buenos Aires",
]
FOODS = split(
    "bread cheese soup rice pasta pizza salad apples pears plums cherries honey tea coffee milk "
    "eggs potatoes carrots tomatoes beans fish pancakes cookies noodles butter"
)
JOBS = split(
    "teacher doctor baker farmer painter pilot nurse writer singer cook gardener engineer sailor "
    "carpenter lawyer dancer driver plumber scientist tailor"
)
HOBBIES = split(
    "reading swimming painting chess music cooking hiking dancing running fishing cycling "
    "gardening "
    "drawing skating sailing"
)
NOUNS = split(
    "table chair window door river cloud train bridge street phone music paper bottle jacket shoe "
    "finger moon sun winter summer morning night water fire glass wood iron sugar salt pepper "
    "green "
    "bird tree flower leaf root snow rain wind storm house room wall roof floor kitchen pencil "
    "wheel "
    "engine ticket ship plane road field hill tower photo camera movie song dance game number word"
)
ADJECTIVES = split(
    "big small old new fast slow warm cold bright dark soft hard loud quiet tall short long wide "
    "deep heavy light sweet sour fresh strange gentle wild calm simple"
)
SYLLABLES = split(
    "ba be bi bo da de di do fa fe fi fo ga go ka ke ki ko la le li lo ma me mi mo na ne ni no pa "
    "pe "
    "pi po ra re ri ro sa se si so ta te ti to va ve vi vo za zo"
)
EMOJI = split(
    "😀 😂 😊 😍 😎 🎉 🚀 🌍 🌞 🌙 ⭐ 🔥 🌈 🍎 🍕 🐱 🐶 🦊 🐻 🌹 💡 📚 🎵 ⚽ 🏆 ❤️ 👍 🙏 🎂 🌲"
)
