import pytest

from schemas.anthropic import OnlyText
from server.apis.anthropic.request import BILLING, system_texts

LINE = f"{BILLING} cc_version=2.1.0; cc_entrypoint=cli; cch=4f2a1;"


def texts(*blocks, keeps=False):
    given = [OnlyText(type="text", text=block) for block in blocks]
    return system_texts(given, keeps_billing_header=keeps)


def test_a_text_and_blocks():
    assert system_texts("a", keeps_billing_header=False) == ["a"]
    assert texts("a", "", "b") == ["a", "b"]
    assert system_texts(None, keeps_billing_header=False) == []


@pytest.mark.parametrize("blocks", [(LINE, "You are."), (f"{LINE}\nYou are.",)])
def test_the_billing_line_is_left_out(blocks):
    assert texts(*blocks) == ["You are."]
    assert "".join(texts(*blocks, keeps=True)).startswith(LINE)


def test_only_a_line_at_the_head_is():
    assert texts(f"See {LINE}") == [f"See {LINE}"]
    assert system_texts(LINE, keeps_billing_header=False) == []
