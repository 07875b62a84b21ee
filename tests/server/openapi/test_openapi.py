"""The document describes the routes correctly."""

import re

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from server.app.app import create_app
from server.app.routes import CONTROLLERS, DEPENDENCIES
from server.openapi.describe import NOT_SUPPORTED, describe
from server.settings.settings import Settings
from server.translation.refusals import refused_fields
from tests.support.asgi import ask

ROUTES = {
    "/v1/chat/completions": "post",
    "/v1/completions": "post",
    "/v1/responses": "post",
    "/v1/messages": "post",
    "/v1/messages/count_tokens": "post",
    "/api/chat": "post",
    "/api/generate": "post",
    "/api/show": "post",
    "/api/embed": "post",
    "/api/embeddings": "post",
    "/api/tags": "get",
    "/api/ps": "get",
    "/api/version": "get",
    "/generate": "post",
    "/tokenize": "post",
    "/v1/tokenize": "post",
    "/detokenize": "post",
    "/v1/detokenize": "post",
    "/v1/models": "get",
    "/v1/models/{model_id}": "get",
    "/health": "get",
    "/v1/health": "get",
    "/livez": "get",
    "/readyz": "get",
    "/stats": "get",
    "/requests": "get",
    "/requests/{request_id}": "get",
}
REFUSED = ("pull", "push", "create", "copy")
PUBLIC = {"/health", "/v1/health", "/livez", "/readyz"}


@pytest.fixture(scope="module")
def document():
    return describe(CONTROLLERS, DEPENDENCIES, has_keys=False)


@pytest.fixture(scope="module")
def guarded():
    return describe(CONTROLLERS, DEPENDENCIES, has_keys=True)


@pytest.fixture
def schemas(document):
    return document["components"]["schemas"]


def operations(document):
    return {
        (path, method): operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }


def references(node):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        if "discriminator" in node:
            yield from node["discriminator"]["mapping"].values()
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from references(child)


def limits(schema, *names):
    """The limits of a field that may also be null."""
    (typed,) = [option for option in schema["anyOf"] if option != {"type": "null"}]
    return tuple(typed.get(name) for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("has_keys", [False, True])
def test_the_document_is_valid(has_keys):
    document = describe(CONTROLLERS, DEPENDENCIES, has_keys=has_keys)
    assert document["openapi"].startswith("3.1")
    OpenAPIV31SpecValidator(document).validate()


def test_every_reference_is_defined(document, schemas):
    found = set(references(document))
    assert len(found) > 30
    assert {reference.removeprefix("#/components/schemas/") for reference in found} <= set(schemas)


def test_types_have_different_names(schemas):
    assert [name for name in schemas if "." in name] == []


def test_every_expected_route_is_described(document):
    assert set(operations(document)) >= set(ROUTES.items())


def test_every_route_of_the_application_is_described(document):
    app = create_app(Settings())
    served = {
        (route.path_format, method.lower())
        for route in app.routes
        for method in route.methods
        if method != "OPTIONS"
    }
    assert served - set(operations(document)) == {
        ("/openapi.json", "get"),
        ("/v1/openapi.json", "get"),
        ("/", "get"),  # the page, which is no part of the API
        ("/ui/{name}", "get"),
        *((f"/api/{name}", "post") for name in REFUSED),
        ("/api/delete", "delete"),
    }
    assert set(operations(document)) <= served


def test_bodies_are_required_json(document):
    for (_, method), operation in operations(document).items():
        if method in {"get", "delete"}:
            assert "requestBody" not in operation
            continue
        assert operation["requestBody"]["required"] is True
        assert list(operation["requestBody"]["content"]) == ["application/json"]


def error_of(path):
    """The content of the errors of a route, in the shape of its API."""
    name = "ErrorResponse"
    if path.startswith("/v1/messages"):
        name = "AnthropicErrorResponse"
    elif path.startswith("/api/"):
        name = "OllamaError"
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def test_every_error_has_the_shape_of_its_api(document):
    for (path, method), operation in operations(document).items():
        error = error_of(path)
        responses = operation["responses"]
        assert "401" not in responses
        assert {"200", "403", "500"} <= set(responses)
        for status, response in responses.items():
            if status != "200" and not (status == "503" and path in PUBLIC):
                assert response["content"] == error, (path, status)
        if method == "post":
            assert {"400", "408", "413", "415", "429", "503", "504"} <= set(responses)
        assert ("404" in responses) == (
            "_id'" in str(operation.get("parameters")) or (method == "post" and path != "/generate")
        )


def test_responses_have_their_types(document):
    def content(path):
        return operations(document)[path, ROUTES[path]]["responses"]["200"]["content"]

    def name(path):
        return content(path)["application/json"]["schema"]["$ref"].rpartition("/")[2]

    assert name("/v1/chat/completions") == "ChatCompletion"
    assert name("/v1/completions") == "Completion"
    assert name("/v1/responses") == "Response"
    assert name("/generate") == "GenerateResponse"
    assert name("/v1/models") == "ModelList"
    assert name("/stats") == "ServerStats"
    assert name("/requests") == "RequestList"
    assert name("/requests/{request_id}") == "RequestRecord"
    assert set(content("/v1/chat/completions")) == {"application/json", "text/event-stream"}
    assert set(content("/v1/completions")) == {"application/json", "text/event-stream"}
    assert set(content("/generate")) == {"application/json", "text/plain"}
    assert set(content("/tokenize")) == {"application/json"}
    assert "ChatCompletionChunk" in str(content("/v1/chat/completions")["text/event-stream"])
    assert "ArgumentsDelta" in str(content("/v1/responses")["text/event-stream"])
    assert "ArgumentsDelta" in document["components"]["schemas"]
    assert "ChatCompletionChunk" in document["components"]["schemas"]
    assert name("/v1/messages") == "AnthropicMessage"
    assert name("/v1/messages/count_tokens") == "TokenCount"
    events = str(content("/v1/messages")["text/event-stream"])
    assert {"MessageStart", "BlockDelta", "AnthropicErrorResponse"} <= set(
        re.findall(r"\w+", events)
    )
    assert "[DONE]" not in events


def test_the_model_id_is_a_path_parameter(document):
    (parameter,) = operations(document)["/v1/models/{model_id}", "get"]["parameters"]
    assert (parameter["name"], parameter["in"], parameter["required"]) == ("model_id", "path", True)


def test_unknown_fields_are_not_described_as_refused(schemas):
    """Without ``--strict-fields`` they are ignored."""
    for name in ("ChatCompletionRequest", "CompletionRequest", "GenerateRequest"):
        assert "additionalProperties" not in schemas[name]


def test_limits_are_kept_also_zero(schemas):
    chat = schemas["ChatCompletionRequest"]["properties"]
    assert limits(chat["temperature"], "minimum", "maximum") == (0, 2)
    assert limits(chat["top_logprobs"], "minimum", "maximum") == (0, 20)
    assert limits(chat["repetition_penalty"], "minimum", "maximum") == (0.001, 1000)
    assert limits(chat["seed"], "minimum", "maximum") == (-(2**63), 2**63 - 1)
    assert limits(chat["min_tokens"], "minimum") == (0,)
    assert limits(chat["stop_token_ids"], "maxItems") == (128,)
    assert limits(chat["logit_bias"], "maxProperties") == (1024,)
    assert chat["logit_bias"]["anyOf"][0]["additionalProperties"]["minimum"] == -100
    assert chat["messages"]["minItems"] == 1
    assert chat["messages"]["items"]["discriminator"]["propertyName"] == "role"
    assert schemas["DetokenizeRequest"]["properties"]["tokens"]["items"]["minimum"] == 0
    assert schemas["ChatCompletionRequest"]["required"] == ["messages"]


def test_keys_that_are_always_written_are_required(schemas):
    chat = schemas["ChatCompletion"]
    assert set(chat["properties"]) - set(chat["required"]) == {
        "service_tier",
        "prompt_logprobs",
        "prompt_token_ids",
        "warnings",
    }
    assert schemas["ErrorObject"]["required"] == ["message", "type", "param", "code"]


@pytest.mark.parametrize(
    ("name", "example"), [("ChatCompletionRequest", "audio"), ("CompletionRequest", "messages")]
)
def test_refused_fields_are_described_as_null(schemas, name, example):
    properties = schemas[name]["properties"]
    refused = {
        key for key, value in properties.items() if value.get("description") == NOT_SUPPORTED
    }
    assert example in refused
    assert "temperature" not in refused
    assert all(properties[key]["type"] == "null" for key in refused)


def test_other_types_have_no_refused_fields():
    assert refused_fields(Settings) == {}


def test_a_server_with_keys_describes_them(document, guarded):
    assert "securitySchemes" not in document["components"]
    assert guarded["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    for (path, _), operation in operations(guarded).items():
        assert ("401" in operation["responses"]) == ("security" in operation)
        assert ("security" in operation) == (path not in PUBLIC)


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/openapi.json", "/v1/openapi.json"])
async def test_the_document_needs_a_key(start_app, path, guarded):
    app = await start_app(api_keys=("secret",))
    assert (await ask(app, "GET", path)).status == 401
    exchange = await ask(app, "GET", path, headers={"authorization": "Bearer secret"})
    assert exchange.status == 200
    assert exchange.headers["content-type"] == "application/json"
    assert exchange.json == guarded


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/docs", "/schema", "/schema/swagger", "/redoc", "/v1"])
async def test_no_documentation_pages_are_served(start_app, path):
    exchange = await ask(await start_app(), "GET", path)
    assert exchange.status == 404
    assert exchange.json["error"]["code"] == "unknown_url"
