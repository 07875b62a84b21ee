"""docs/limits.md is what the types of the requests say."""

from __future__ import annotations

import re

import pytest

from docs.make_limits import PAGE, REQUESTS, limits_of, limits_page
from schemas.limits import field_bytes

REFUSED = {"image_url", "input_audio", "file", "audio", "messages", "prompt", "source", "images[]"}
"""What takes any JSON of any size is refused or ignored, not read.

`messages` is that of completions, `prompt` that of responses.
"""

TEXTS = {"input", "arguments"}
"""JSON that stays text until a chat template reads it, as the arguments of chat messages do."""


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == limits_page(), "run python -m docs.make_limits"


@pytest.mark.parametrize("route", REQUESTS)
def test_a_section_names_every_field_with_a_limit(route: str) -> None:
    section = limits_page().partition(f"## {route}\n")[2].partition("\n## ")[0]
    for path, _ in limits_of(REQUESTS[route]):
        field = re.split(r"[.[ ]", path)[0]
        assert re.search(rf"`{field}[`.[ ]", section), field


@pytest.mark.parametrize("request_type", REQUESTS.values())
def test_every_value_of_every_request_has_a_limit(request_type: type) -> None:
    rows = list(limits_of(request_type))
    assert rows
    assert [path for path, limit in rows if limit is None] == []


@pytest.mark.parametrize("request_type", REQUESTS.values())
def test_free_json_is_limited_in_bytes(request_type: type) -> None:
    """A limit of bytes bounds what the types leave open."""
    for path, limit in limits_of(request_type):
        assert limit is not None
        if limit.startswith("any JSON") and field_bytes(path.split(".")[0].split("[")[0]) is None:
            assert path.removesuffix(".*").rpartition(".")[2] in REFUSED | TEXTS, path
