"""The files that a common change touches, as CONTRIBUTING.md lists them."""

import re

import pytest

from tests.docs.markdown import page
from tests.support.source_tree import FILES, ROOT, name_of

OTHER_API = re.compile("responses|ollama|anthropic")
"""APIs whose fields are theirs to define. A field that only OpenAI has touches none of them."""


@pytest.mark.parametrize("field", ["presence_penalty", "frequency_penalty"])
def test_a_sampling_field_that_edits_logits_touches_four_files(field):
    named = re.compile(rf"\b({field}|Penalties)\b")
    files = {name_of(file) for file in FILES if named.search(file.read_text(encoding="utf-8"))}
    files.discard("server/translation/refusals.py")  # refuses llama.cpp's fields beside these
    files.discard("server/observe/tracing.py")  # a name of OpenTelemetry's conventions
    files = {file for file in files if not OTHER_API.search(file)}
    assert files == {
        "schemas/sampling.py",
        "core/contract/params.py",
        "core/sampling/processors/penalties.py",
        "core/sampling/processors/__init__.py",
    }


def test_the_parts_of_a_decoder_family_are_in_the_files_that_they_name():
    section = page(ROOT / "CONTRIBUTING.md").section("A decoder family")
    assert len(section.splitlines()) <= 40
    parts = re.findall(r"in\s`(\S+)`:\n\n```\w+\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert len(parts) == 4
    for file, code in parts:
        assert code in (ROOT / file).read_text("utf-8"), file
