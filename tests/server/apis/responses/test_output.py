import pytest

from server.apis.responses.output import SEALED, sealed, unsealed


@pytest.mark.parametrize("text", ["", "thought", "é 🙂\n"])
def test_sealed_text_is_read_again(text):
    assert unsealed(sealed(text)) == text


@pytest.mark.parametrize("content", ["", "gAAAAAB", SEALED + "%", SEALED + "gICA"])
def test_what_others_sealed_is_not_read(content):
    assert unsealed(content) is None
