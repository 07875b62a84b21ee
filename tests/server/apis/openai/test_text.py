from server.apis.openai.completions import TextRenderer
from tests.support.engines import last, out


def test_raw_text_and_whole_response():
    renderer = TextRenderer("pré ")
    assert renderer.begin() == renderer.end() == b""
    assert renderer.feed(0, out(text="é")) == "é".encode()
    assert renderer.error("no") is None
    assert renderer.whole([last(text="fin\n")]) == '{"text":"pré fin\\n"}'.encode()
