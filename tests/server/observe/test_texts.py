"""Texts that are kept: prompts as the model saw them, answers by choice."""

from server.observe.texts import Texts
from tests.support.engines import out


class Tokenizer:
    def decode(self, ids, *, skip_special_tokens):
        assert not skip_special_tokens
        return "".join(map(chr, ids))


def test_choices_are_told_apart():
    texts = Texts()
    texts.take(1, out(text="other"))
    texts.take(0, out(thinking="hm", text=""))
    texts.take(0, out(text="on"))
    texts.take(0, out(text="e"))
    assert texts.text == "hmone\n\nother"


def test_prompts_are_decoded():
    texts = Texts()
    assert (texts.prompt, texts.text) == ("", "")
    texts.take_prompts([[72, 105], [33]], Tokenizer())
    assert texts.prompt == "Hi\n\n!"
