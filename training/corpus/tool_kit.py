"""Invented and common tools: their schemas, requests, arguments and results."""

from collections.abc import Callable
from dataclasses import dataclass

from training.corpus import words
from training.corpus.chat import Json
from training.corpus.source import Source


@dataclass(frozen=True)
class Use:
    """One request for a tool, its arguments, its result and the final answer."""

    tool: str
    request: str
    arguments: dict[str, Json]
    result: Json
    answer: str


@dataclass(frozen=True)
class Tool:
    """A tool in the OpenAI format; ``ask`` makes random requests for it."""

    name: str
    schema: dict[str, Json]
    ask: Callable[[Source], Use]


Maker = Callable[[Source], Json]


def _schema(source: Source, name: str, about: str, parameters: dict[str, Json]) -> dict[str, Json]:
    """A tool in the OpenAI format, with the small differences between clients."""
    schema: dict[str, Json] = {"type": "object", "properties": parameters}
    if source.chance(0.75):
        schema["required"] = list(parameters)
    if source.chance(0.15):
        schema["additionalProperties"] = False
    function: dict[str, Json] = {"name": name}
    if source.chance(0.85):
        function["description"] = about
    function["parameters"] = schema
    return {"type": "function", "function": function}


def _made_up(source: Source) -> str:
    return "".join(source.choices(words.SYLLABLES, k=source.randint(2, 4)))


def _place(source: Source) -> str:
    return source.choice(words.CITIES) if source.chance(0.7) else _made_up(source).title()


def _name(source: Source) -> str:
    return source.choice(words.NAMES) if source.chance(0.7) else _made_up(source).title()


def _word(source: Source) -> str:
    pool = source.choice((words.NOUNS, words.OBJECTS, words.FOODS, words.ANIMALS, words.PLACES))
    return source.choice(pool) if source.chance(0.75) else _made_up(source)


def _phrase(source: Source) -> str:
    return " ".join(_word(source) for _ in range(source.randint(1, 3)))


def _date(source: Source) -> str:
    return f"{source.randint(2020, 2030)}-{source.randint(1, 12):02}-{source.randint(1, 28):02}"


def _time(source: Source) -> str:
    return f"{source.randint(0, 23):02}:{source.choice((0, 15, 30, 45)):02}"


def _number(source: Source) -> int:
    return source.randint(0, source.choice((10, 100, 1000, 10000)))


PARAMETERS: dict[str, tuple[str, str, Maker]] = {
    "city": ("string", "The city", _place),
    "location": ("string", "The place", _place),
    "name": ("string", "The name", _name),
    "user": ("string", "The user", _name),
    "title": ("string", "The title", _phrase),
    "query": ("string", "What to look for", _phrase),
    "text": ("string", "The text", _phrase),
    "message": ("string", "The message", _phrase),
    "item": ("string", "The item", _word),
    "key": ("string", "The key", _word),
    "value": ("string", "The value", _word),
    "topic": ("string", "The topic", _word),
    "color": ("string", "The color", lambda s: s.choice(words.COLOURS)),
    "date": ("string", "The date", _date),
    "time": ("string", "The time", _time),
    "count": ("integer", "How many", _number),
    "amount": ("number", "The amount", _number),
    "limit": ("integer", "The largest number of results", _number),
    "id": ("integer", "The id", _number),
    "level": ("integer", "The level", lambda s: s.randint(0, 10)),
    "price": ("number", "The price", lambda s: s.randint(1, 99) + s.choice((0.5, 0.25, 0.75))),
    "x": ("number", "The first number", _number),
    "y": ("number", "The second number", _number),
    "enabled": ("boolean", "Whether it is on", lambda s: s.chance(0.5)),
}
VERBS = words.split(
    "get set find search create delete update send open close start stop book order play read "
    "write "
    "check list add remove show fetch calculate convert schedule cancel buy sell count rename move"
)
THINGS = words.split(
    "user file order song light door alarm event ticket room task note message price stock report "
    "image table record account invoice timer recipe book player map city list item email meeting "
    "flight hotel car product game lamp window document contact reminder"
)
HELD_OUT_THINGS = words.split("parcel garden movie printer camera")
FORMS = (
    "{verb} the {thing} with {pairs}.",
    "{verb} {a_thing} with {pairs}.",
    "Please {lower} the {thing} with {pairs}.",
    "Can you {lower} the {thing} with {pairs}?",
    "I want to {lower} {a_thing}: {pairs}.",
    "Call {name} with {pairs}.",
    "Use {name} with {pairs}.",
    "Use the tool {name}: {pairs}.",
    "Could you please {lower} the {thing} with {pairs}?",
)


def _spoken(value: Json) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def made_up(source: Source) -> Tool:
    """Invent a tool from a verb, a noun and some parameters."""
    verb = source.choice(VERBS)
    thing = source.choice(HELD_OUT_THINGS if source.held_out else THINGS)
    if source.chance(0.15):
        thing = _made_up(source)
    name = source.choice((f"{verb}_{thing}", f"{verb}_{thing}", f"{verb}{thing.title()}"))
    keys = source.sample(list(PARAMETERS), source.choice((1, 1, 2, 2, 3)))
    if source.chance(0.1):
        keys[0] = _made_up(source)
    described = source.chance(0.5)
    parameters: dict[str, Json] = {}
    makers: dict[str, Maker] = {}
    for key in keys:
        kind, description, makers[key] = PARAMETERS.get(key, ("string", "A word", _word))
        parameters[key] = (
            {"type": kind, "description": description} if described else {"type": kind}
        )

    def ask(source: Source) -> Use:
        arguments = {key: maker(source) for key, maker in makers.items()}
        sign = source.choice((" ", " ", "=", " = ", ": "))
        pairs = [f"{key}{sign}{_spoken(value)}" for key, value in arguments.items()]
        request = source.phrase(FORMS).format(
            verb=verb.title(),
            lower=verb,
            thing=thing,
            a_thing=words.article(thing),
            name=name,
            pairs=(" and " if source.chance(0.6) else ", ").join(pairs),
        )
        return Use(name, request, arguments, *_outcome(source, thing))

    about = f"{verb.title()} {words.article(thing)}"
    return Tool(name, _schema(source, name, about, parameters), ask)


def _outcome(source: Source, thing: str) -> tuple[Json, str]:
    """The result of the tool, and the assistant's answer."""
    key = source.choice(("status", "result", "price", "count", "name", "color", "id", "total"))
    value: Json = {
        "status": source.choice(("ok", "done", "open", "closed", "ready")),
        "name": _name(source),
        "color": source.choice(words.COLOURS),
    }.get(key, _number(source))
    if source.chance(0.1):
        return {"error": f"{thing} not found"}, f"Sorry, there was an error: {thing} not found."
    return {key: value}, f"The {key} is {value}."


def _entry(kind: str, description: str, source: Source) -> dict[str, Json]:
    return {"type": kind, "description": description} if source.chance(0.5) else {"type": kind}


def weather(source: Source) -> Tool:
    name = source.choice(("get_weather", "get_weather", "get_current_weather", "weather"))
    about = source.choice(
        (
            "Get the weather",
            "Get the current weather",
            "Get the weather in a city",
            "Get the current weather in a given location",
        )
    )
    key = source.choice(("city", "city", "location", "place"))
    description = source.choice(("The city", "City name", "The city name"))
    parameters: dict[str, Json] = {key: _entry("string", description, source)}
    has_unit = source.chance(0.25)
    if has_unit:
        parameters["unit"] = {"type": "string", "enum": ["celsius", "fahrenheit"]}

    def ask(source: Source) -> Use:
        city, degrees = _place(source), source.randint(-10, 38)
        sky = source.choice(("sunny", "cloudy", "rainy", "windy"))
        request = source.phrase(
            (
                "What is the weather in {0}?",
                "What's the weather in {0}?",
                "How is the weather in {0}?",
                "What is the weather like in {0}?",
                "What's the weather like in {0} today?",
                "Tell me the weather in {0}.",
                "Get the weather in {0}.",
                "What is the weather in {0} today?",
                "Is it raining in {0}?",
                "weather in {0}",
                "How warm is it in {0}?",
                "Please tell me the weather in {0}.",
                "Can you check the weather in {0}?",
            )
        ).format(city)
        arguments: dict[str, Json] = {key: city}
        if has_unit and source.chance(0.7):
            unit = source.choice(("celsius", "fahrenheit"))
            arguments["unit"] = unit
            request = (
                f"{request.rstrip('?.')} in {unit}{request[-1] if request[-1] in '?.' else ''}"
            )
        result: Json = {"temperature": degrees, "condition": sky}
        return Use(
            name, request, arguments, result, f"It is {degrees} degrees and {sky} in {city}."
        )

    return Tool(name, _schema(source, name, about, parameters), ask)


def calculator(source: Source) -> Tool:
    """A calculator, for numbers that are too large for the model."""
    name = source.choice(("add", "add_numbers", "sum"))
    first, second = source.choice((("a", "b"), ("x", "y")))
    kind = source.choice(("integer", "number"))
    parameters: dict[str, Json] = {
        first: _entry(kind, "First", source),
        second: _entry(kind, "Second", source),
    }

    def ask(source: Source) -> Use:
        top = source.choice((20, 999, 9999))
        a, b = source.randint(1, top), source.randint(1, top)
        request = source.phrase(
            (
                "What is {0} + {1}?",
                "Add {0} and {1}.",
                "Please add {0} and {1}.",
                "Sum {0} and {1}.",
                "Use the tool to add {0} and {1}.",
                "Calculate {0} plus {1}.",
                "How much is {0} plus {1}?",
            )
        ).format(a, b)
        result: Json = {source.choice(("result", "sum")): a + b}
        return Use(name, request, {first: a, second: b}, result, f"{a} + {b} = {a + b}")

    return Tool(name, _schema(source, name, "Add two numbers", parameters), ask)


def clock(source: Source) -> Tool:
    """The current time, with or without a place."""
    name = source.choice(("get_time", "get_current_time"))
    key = source.choice(("city", "location", "timezone", ""))
    parameters: dict[str, Json] = {key: _entry("string", "The city", source)} if key else {}

    def ask(source: Source) -> Use:
        city, now = _place(source), _time(source)
        here = (
            "What time is it?",
            "What is the time?",
            "Tell me the time.",
            "What time is it now?",
        )
        there = (
            "What time is it in {0}?",
            "What is the time in {0}?",
            "Tell me the time in {0}.",
            "What time is it now in {0}?",
        )
        request = source.phrase(there if key else here).format(city)
        where = f" in {city}" if key else ""
        return Use(name, request, {key: city} if key else {}, {"time": now}, f"It is {now}{where}.")

    about = "Get the current time in a city" if key else "Get the current time"
    return Tool(name, _schema(source, name, about, parameters), ask)


def lookup(source: Source) -> Tool:
    name = source.choice(("search", "web_search", "search_web", "lookup"))
    key = source.choice(("query", "query", "q"))
    parameters: dict[str, Json] = {key: _entry("string", "What to look for", source)}

    def ask(source: Source) -> Use:
        query, title = _phrase(source), _phrase(source)
        request = source.phrase(
            (
                "Search for {0}.",
                "Search the web for {0}.",
                "Find {0}.",
                "Look up {0}.",
                "Please search for {0}.",
                "Can you search for {0}?",
                "Search {0}",
            )
        ).format(query)
        return Use(name, request, {key: query}, {"title": title}, f"I found this: {title}.")

    return Tool(name, _schema(source, name, "Search the web", parameters), ask)


def mail(source: Source) -> Tool:
    name = source.choice(("send_message", "send_email", "send_mail"))
    to, body = source.choice((("to", "message"), ("to", "body"), ("recipient", "text")))
    parameters: dict[str, Json] = {
        to: _entry("string", "Who gets it", source),
        body: _entry("string", "The text", source),
    }

    def ask(source: Source) -> Use:
        who, text = _name(source), _phrase(source)
        request = source.phrase(
            (
                "Send {0} the message {1}.",
                "Send a message to {0}: {1}.",
                "Write to {0}: {1}.",
                "Tell {0} this: {1}.",
                "Send an email to {0} saying {1}.",
                "Message {0}: {1}.",
            )
        ).format(who, text)
        answer = f"The message to {who} was sent."
        return Use(name, request, {to: who, body: text}, {"status": "sent"}, answer)

    return Tool(name, _schema(source, name, "Send a message", parameters), ask)


USUAL = (weather, weather, calculator, clock, lookup, mail)


def tool(source: Source) -> Tool:
    """An invented tool or one of the common ones."""
    return made_up(source) if source.chance(0.5) else source.choice(USUAL)(source)
