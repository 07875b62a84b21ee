"""docs/api.md names every route and every request field, and no others."""

import re

from litestar.routes import HTTPRoute

from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from schemas.generate import GenerateRequest
from server.app.app import create_app
from server.settings.settings import Settings
from server.translation.refusals import refused_fields
from tests.docs.markdown import ROOT, page

API = page(ROOT / "docs" / "api.md")
ROUTE = re.compile(r"^(GET|POST|DELETE) (/\S*)$")

REFUSED_LIKE_OTHERS = {"guided_decoding_backend"}


def routes_of_the_app() -> set[str]:
    """Method and path of every route, as the OpenAPI document writes them."""
    app = create_app(Settings())
    return {
        f"{method} {route.path_format}"
        for route in app.routes
        if isinstance(route, HTTPRoute)
        for method in route.route_handler_map
        if method != "OPTIONS"
    }


def test_routes_are_those_of_the_application() -> None:
    named = {span for span in API.spans if ROUTE.match(span)}
    assert named == routes_of_the_app()


def test_readme_names_only_routes_that_exist() -> None:
    named = {span for span in page(ROOT / "README.md").spans if ROUTE.match(span)}
    assert named
    assert named <= routes_of_the_app()


def test_the_key_column_says_which_routes_are_public() -> None:
    app = create_app(Settings(api_keys=("k",)))
    public = {
        f"{method} {route.path_format}"
        for route in app.routes
        if isinstance(route, HTTPRoute)
        for method, (handler, _) in route.route_handler_map.items()
        if method != "OPTIONS" and handler.opt.get("public")
    }
    rows = [
        line.strip("| ").split("|") for line in API.section("Routes").splitlines() if "/" in line
    ]
    said = {
        route
        for cells in rows
        if len(cells) == 3 and cells[2].strip() == "no"
        for route in re.findall(r"`([^`]+)`", cells[0])
    }
    assert said == public


def test_every_request_field_is_described() -> None:
    spans = set(API.spans)
    for request in (ChatCompletionRequest, CompletionRequest, GenerateRequest):
        missing = set(request.__struct_fields__) - spans
        assert not missing, (request.__name__, sorted(missing))


def test_refused_fields_are_those_of_the_table() -> None:
    section = API.section("Refused fields")
    said = set(re.findall(r"`(\w+)`", section))
    tables = (ChatCompletionRequest, CompletionRequest)
    assert said == {name for request in tables for name in refused_fields(request)}
