"""docs/responses.md names every field of the request."""

from schemas.responses_request import ResponsesRequest
from server.settings.settings import Settings
from tests.docs.markdown import ROOT, page

PAGE = page(ROOT / "docs" / "responses.md")


def test_every_request_field_is_described() -> None:
    assert not set(ResponsesRequest.__struct_fields__) - set(PAGE.spans)


def test_the_limits_of_the_store() -> None:
    settings = Settings()
    assert f"last {settings.max_stored_responses:,} " in PAGE.text
    assert f"{settings.max_stored_response_bytes // 2**20} MiB" in PAGE.text
