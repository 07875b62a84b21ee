"""The table of limits: the largest text, list, number and field that a request may contain.

Types of fields refer to these. ``docs/limits.md`` is generated from the types and FIELD_BYTES.
"""

MiB = 2**20

INT32_MAX = 2**31 - 1
"""Maximum of integers that the engine puts into 32-bit tensors, and of counts of tokens."""

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

MAX_NUMBER = 1e9
"""Maximum magnitude of decimals without a narrower range."""

MAX_TEXT = 2**25
"""Characters of a prompt, of a content, of arguments."""

MAX_TOKENIZED = 2**22
"""Characters of a text, and bytes of messages, that are only tokenized or counted: a tokenizer
takes some hundred bytes for each token."""

MAX_UNPACKED = 2**22
"""Bytes of thinking that all signatures of a Messages request carry together."""

MAX_DESCRIPTION = 2**20
"""Characters of a description, a grammar, a regular expression or a schema as text."""

MAX_LABEL = 1024
"""Characters of a name or id without a narrower limit."""

MAX_MESSAGES = 4096
MAX_PARTS = 16_384
MAX_CALLS = 1024
"""Messages, parts of one message, calls of one message."""

MAX_INPUT_ITEMS = 16_384
"""Items of a conversation in the Responses API."""

MAX_TOOLS = 1024
MAX_FUNCTION_NAME = 256
"""Tools, and characters of a tool's name. OpenAI allows 128 and 64, but agents send more."""

MAX_CHOICES = 128
"""Choices per prompt."""

MAX_PROMPTS = 2048
MAX_PROMPT_ITEMS = 2**20
"""Prompts, which is OpenAI's limit of inputs, and token ids of one prompt."""

MAX_STOP, MAX_STOP_LENGTH = 64, 1024
MAX_BAD_WORDS, MAX_BAD_WORD_LENGTH = 128, 256
MAX_BAD_WORD_TOKENS = 64
"""Tokens of a bad word. A step compares the end of each output with words of every length."""

MAX_PRIORITY = 1000
"""Maximum magnitude of a priority."""

MAX_LOGIT_BIAS = 1024
MAX_TOKEN_IDS = 128
"""Stop token ids and the like."""

MAX_ALLOWED_TOKEN_IDS = 2**20

MAX_OPTIONS = 16_384
"""Strings of a choice constraint."""

MAX_ITEMS = 1024
"""Items of a list, and keys of an object, without a narrower limit."""

MAX_DEPTH = 200
"""Levels of lists and objects inside of one of NESTED_FIELDS."""

NESTED_FIELDS = (
    "chat_template_kwargs",
    "tools",
    "response_format",
    "structured_outputs",
    "structural_tag",
    "guided_json",
    "json_schema",
    "text",
    "metadata",
)
"""Top-level fields that contain any JSON and are read."""

MAX_CONTAINERS = 2**17
"""Characters ``[`` and ``{`` of a body, those inside of texts included. The decoder holds the
interpreter lock while it makes as many objects."""

MAX_COMMAS = MAX_PROMPT_ITEMS + 1024
"""Characters ``,`` of a body, those inside of texts included. The decoder holds the interpreter
lock for 60 ms for as many token ids."""

MAX_KEYS = 400_000
"""Keys of a body. There are no more than its colons, and no more than half of its quotation marks,
those inside of texts included."""

MAX_COLONS = 200_000
"""Characters ``:`` of a body with unknown fields: its fields are listed to name those."""

DEFAULT_FIELD_BYTES = MiB // 8
FIELD_BYTES: dict[str, int | None] = {
    "messages": None,
    "input": None,
    "instructions": None,
    "system": None,
    "prompt": None,
    "suffix": None,
    "documents": 8 * MiB,
    "query": None,
    "text_1": None,
    "text_2": None,
    "tokens": None,
    "tools": 8 * MiB,
    "functions": 8 * MiB,
    "prediction": 8 * MiB,
    "allowed_token_ids": 8 * MiB,
    "stop": MiB,
    "logit_bias": 2 * MiB,
    "bad_words": MiB,
    "chat_template": MiB,
    "chat_template_kwargs": MiB // 4,
    **dict.fromkeys(
        (
            "text",
            "response_format",
            "format",
            "options",
            "output_config",
            "output_format",
            "structured_outputs",
            "structural_tag",
            "guided_json",
            "guided_choice",
            "guided_grammar",
            "json_schema",
            "grammar",
            "ebnf",
            "guided_regex",
            "regex",
        ),
        2 * MiB,
    ),
}
"""Bytes of the JSON of a top-level field; None: those of the body. Others: DEFAULT_FIELD_BYTES."""


def field_bytes(name: str) -> int | None:
    """Return the limit of a top-level field, None if only the body's applies."""
    return FIELD_BYTES.get(name, DEFAULT_FIELD_BYTES)
