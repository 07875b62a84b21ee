"""Texts that are kept: prompts as the model saw them, answers by choice."""

from server.observe.trace import Texts
from tests.support.engines import out


class Renderer:
    """Says what it is asked."""

    media_type, keep_alive = "text/x", b":"

    def weight(self, index, output):
        return index + len(output.text)

    def begin(self):
        return b"begin"

    def feed(self, index, output):
        return f"{index}{output.text}".encode()

    def end(self):
        return b"end"

    def error(self, message, cause=None):
        return f"{message}{cause}".encode()

    def whole(self, outputs):
        return "".join(output.text for output in outputs).encode()


class Tokenizer:
    def decode(self, ids, *, skip_special_tokens):
        assert not skip_special_tokens
        return "".join(map(chr, ids))


def test_nothing_but_listening_changes():
    heard = Texts().heard(Renderer())
    assert (heard.media_type, heard.keep_alive) == ("text/x", b":")
    assert heard.weight(3, out(text="ab")) == 5
    assert heard.begin() == b"begin"
    assert heard.feed(1, out(text="a")) == b"1a"
    assert heard.end() == b"end"
    assert heard.error("no", ValueError("x")) == b"nox"
    assert heard.whole([out(text="a"), out(text="b")]) == b"ab"


def test_streamed_choices_are_told_apart():
    texts = Texts()
    heard = texts.heard(Renderer())
    heard.feed(1, out(text="other"))
    heard.feed(0, out(thinking="hm", text=""))
    heard.feed(0, out(text="on"))
    heard.feed(0, out(text="e"))
    assert texts.text == "hmone\n\nother"


def test_whole_answers_are_heard():
    texts = Texts()
    texts.heard(Renderer()).whole([out(text="a"), out(text="b")])
    assert texts.text == "a\n\nb"


def test_prompts_are_decoded():
    texts = Texts()
    assert (texts.prompt, texts.text) == ("", "")
    texts.take_prompts([[72, 105], [33]], Tokenizer())
    assert texts.prompt == "Hi\n\n!"
