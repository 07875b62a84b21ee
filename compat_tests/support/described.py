"""The server's own OpenAPI document: values drawn from its schemas, and checked against them."""

import string
from typing import Any

from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from jsonschema.validators import extend

from compat_tests.support.api import Json
from compat_tests.support.process import ServerProcess

MOST_FIELDS = 12
"""Optional fields of one object: with many more of them, nearly every request is refused."""

WORDS = ("", " ", "a", "Hello", "Tell me a story. ", "\n", "\0", "é", "\u2028", "🌹", "<|im_end|>")

# JSON Schema takes 1.0 for an integer; the server asks for one that is written as one.
_Validator = extend(
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    ),
)

texts = st.one_of(
    st.sampled_from(WORDS),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.lists(st.sampled_from(WORDS), max_size=4).map("".join),
)
numbers = st.one_of(
    st.integers(-3, 3), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, width=32)
)
anything: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(), st.booleans(), numbers.filter(lambda value: abs(value) < float("inf")), texts
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(texts, inner, max_size=2)),
    max_leaves=4,
)


class Document:
    """``GET /openapi.json`` of a server."""

    def __init__(self, server: ServerProcess) -> None:
        self.json: Json = server.get("/openapi.json").json
        self.model = server.model
        self._schemas: Json = self.json["components"]["schemas"]
        self._validators: dict[str, Any] = {}
        self._strategies: dict[str, st.SearchStrategy[Any]] = {}

    def request_name(self, path: str) -> str:
        """The name of the type of a route's bodies."""
        body = self.json["paths"][path]["post"]["requestBody"]
        return _name(body["content"]["application/json"]["schema"])

    def response_name(self, path: str, method: str = "post", status: int = 200) -> str:
        """The name of the type of a route's JSON answers."""
        response = self.json["paths"][path][method]["responses"][str(status)]
        return _name(response["content"]["application/json"]["schema"])

    def tagged(self, tag: str) -> str:
        """The name of the type whose ``type`` is ``tag``."""
        [name] = [
            name
            for name, schema in self._schemas.items()
            if schema.get("properties", {}).get("type", {}).get("enum") == [tag]
        ]
        return name

    def fault(self, name: str, value: Any) -> str | None:
        """What is wrong with a value of this type."""
        if name not in self._validators:
            schema = {"$ref": f"#/components/schemas/{name}", "components": self.json["components"]}
            self._validators[name] = _Validator(schema)
        error = best_match(self._validators[name].iter_errors(value))
        return None if error is None else f"{error.json_path}: {error.message[:300]}"

    def values(self, name: str) -> st.SearchStrategy[Any]:
        """Values of this type."""
        if name not in self._strategies:
            self._strategies[name] = st.deferred(lambda: self._strategies[f"{name} itself"])
            self._strategies[f"{name} itself"] = self._from(self._schemas[name])
        return self._strategies[name]

    def _from(self, schema: Json) -> st.SearchStrategy[Any]:
        match schema:
            case {"$ref": _}:
                return self.values(_name(schema))
            case {"type": "object", "properties": _}:
                return self._object(schema)
            case {"enum": options}:
                return st.sampled_from(options)
            case {"anyOf": options}:
                typed = [option for option in options if option != {"type": "null"}]
                branches = [self._from(option) for option in typed] * 3
                return st.one_of(*branches, *([st.none()] if len(typed) < len(options) else []))
            case {"type": "null"}:
                return st.none()
            case {"type": "boolean"}:
                return st.booleans()
            case {"type": "integer"}:
                return _integers(schema.get("minimum"), schema.get("maximum"))
            case {"type": "number"}:
                return _floats(schema)
            case {"type": "string"}:
                return _strings(schema)
            case {"type": "array"}:
                return st.lists(
                    self._from(schema.get("items", {})),
                    min_size=schema.get("minItems", 0),
                    max_size=schema.get("minItems", 0) + 2,
                )
            case {"type": "object"}:
                return self._map(schema)
        assert set(schema) <= {"default", "description"}, schema
        return anything

    def _object(self, schema: Json) -> st.SearchStrategy[Json]:
        properties = schema["properties"]
        required = schema.get("required", [])
        optional = sorted(
            name
            for name, field in properties.items()
            if name not in required and field.get("type") != "null"
        )
        fields = {name: self._from(properties[name]) for name in properties}

        @st.composite
        def objects(draw: st.DrawFn) -> Json:
            chosen = draw(
                st.lists(st.sampled_from(optional), max_size=MOST_FIELDS, unique=True)
                if optional
                else st.just([])
            )
            return {name: draw(fields[name]) for name in [*required, *chosen]}

        return objects()

    def _map(self, schema: Json) -> st.SearchStrategy[Json]:
        keys = st.one_of(st.integers(0, 2100).map(str), texts.filter(lambda text: len(text) < 64))
        values = self._from(schema.get("additionalProperties", {}))
        return st.dictionaries(keys, values, max_size=2)


def _name(schema: Json) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _integers(low: int | None, high: int | None) -> st.SearchStrategy[int]:
    low_or, high_or = (-(2**40) if low is None else low), (2**40 if high is None else high)
    small = st.integers(max(low_or, -2), min(high_or, max(low_or, 0) + 8))
    return st.one_of(small, small, st.integers(low_or, high_or), st.sampled_from([low_or, high_or]))


def _floats(schema: Json) -> st.SearchStrategy[float]:
    low = schema.get("minimum", schema.get("exclusiveMinimum", -100))
    return st.floats(
        low,
        schema.get("maximum", 100),
        exclude_min="exclusiveMinimum" in schema,
        allow_subnormal=False,
    ) | st.integers(int(low) + ("exclusiveMinimum" in schema), schema.get("maximum", 100))


def _strings(schema: Json) -> st.SearchStrategy[str]:
    low, high = schema.get("minLength", 0), schema.get("maxLength", 1000)
    if "pattern" in schema:
        plain = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=8)
        return plain | st.just("x" * min(high, 64))
    return texts.filter(lambda text: low <= len(text) <= high)
