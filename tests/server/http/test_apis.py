import msgspec
import pytest
from litestar import Litestar

from schemas.errors import ErrorObject
from server.app.routes import CONTROLLERS, DEPENDENCIES
from server.http import apis
from server.http.apis import api_at, openai_shape, path_at, table
from server.http.paths import full_path
from server.openapi.describe import StreamedSpec


@pytest.fixture(scope="module")
def handlers():
    """Path and handler of all routes of the APIs."""
    app = Litestar(CONTROLLERS, dependencies=DEPENDENCIES, openapi_config=None)
    return [
        (route.path, handler)
        for route in app.routes
        for handler in route.route_handlers
        if handler.http_methods != {"OPTIONS"}
    ]


class TestTheTableOfPaths:
    def test_it_has_the_paths_of_all_routes(self, handlers):
        assert {path for path, _ in handlers} == table().keys()

    def test_routes_that_read_a_body_take_tickets(self, handlers):
        for path, handler in handlers:
            assert path_at(path).has_ticket == (handler.parsed_data_field is not None), path

    def test_streams_are_what_the_routes_declare(self, handlers):
        for path, handler in handlers:
            spec = (handler.responses or {}).get(200)
            declared = ""
            if isinstance(spec, StreamedSpec):
                declared = spec.stream_type if spec.events else "text/plain"
            assert path_at(path).stream == declared, path

    def test_a_path_that_is_in_no_api(self):
        assert path_at("/nowhere") == apis.ApiPath()


@pytest.mark.parametrize(
    ("path", "full"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/messages/count_tokens", "/v1/messages/count_tokens"),
        ("/v1/messages", "/v1/messages"),
        ("/tokenize", "/tokenize"),
        ("/generate", "/generate"),
        ("/health", "/health"),
        ("/nowhere", "/nowhere"),
    ],
)
def test_the_long_form_of_a_path(path, full):
    assert full_path(path) == full


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank", "/tokenize"])
def test_paths_that_take_tickets_in_each_form(path):
    assert path_at(full_path(path)).has_ticket


@pytest.mark.parametrize("path", ["/v1/generate", "/v1/models", "/models", "/api/tags"])
def test_paths_that_take_none(path):
    assert not path_at(full_path(path)).has_ticket


@pytest.fixture
def shapes(monkeypatch):
    """Shapes of a route and of a folder of routes."""
    shapes = {"/v1/one": lambda *_: b"one", "/folder/": lambda *_: b"folder"}
    entries = {place: apis.Api(paths={}, shape=shape) for place, shape in shapes.items()}
    monkeypatch.setattr(apis, "_apis", entries)
    return shapes


class TestTheApiOfAPath:
    @pytest.mark.parametrize("path", ["/v1/one", "/v1/one/", "/v1/one/more"])
    def test_a_route_and_what_is_below(self, shapes, path):
        assert api_at(path).shape is shapes["/v1/one"]

    def test_a_folder(self, shapes):
        assert api_at("/folder/x").shape is shapes["/folder/"]

    @pytest.mark.parametrize("path", ["/", "/v1/ones", "/folder", "/folders/x", "/x/v1/one"])
    def test_everything_else_is_openai_s(self, shapes, path):
        assert shapes
        assert api_at(path).shape is openai_shape


def test_the_shape_of_openai():
    error = ErrorObject(message="no", type="server_error", param=None, code="c")
    assert msgspec.json.decode(openai_shape(500, error)) == {
        "error": {"message": "no", "type": "server_error", "param": None, "code": "c"}
    }
