import msgspec
import pytest

from schemas.errors import ErrorObject
from server.http import apis
from server.http.apis import openai_shape, shape_at


@pytest.fixture
def shapes(monkeypatch):
    """Shapes of a route and of a folder of routes."""
    shapes = {"/v1/one": lambda *_: b"one", "/folder/": lambda *_: b"folder"}
    entries = {place: apis.Api(shape) for place, shape in shapes.items()}
    monkeypatch.setattr(apis, "_APIS", entries)
    return shapes


class TestShapeAt:
    @pytest.mark.parametrize("path", ["/v1/one", "/v1/one/", "/v1/one/more"])
    def test_a_route_and_what_is_below(self, shapes, path):
        assert shape_at(path) is shapes["/v1/one"]

    def test_a_folder(self, shapes):
        assert shape_at("/folder/x") is shapes["/folder/"]

    @pytest.mark.parametrize("path", ["/", "/v1/ones", "/folder", "/folders/x", "/x/v1/one"])
    def test_everything_else_is_openai_s(self, shapes, path):
        assert shapes
        assert shape_at(path) is openai_shape


def test_the_shape_of_openai():
    error = ErrorObject(message="no", type="server_error", param=None, code="c")
    assert msgspec.json.decode(openai_shape(500, error)) == {
        "error": {"message": "no", "type": "server_error", "param": None, "code": "c"}
    }
