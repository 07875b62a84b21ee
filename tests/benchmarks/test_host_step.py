from benchmarks.host_step import measure
from core.builtin_model import path
from core.text.tokenizer import Tokenizer


def test_steps_without_a_model_are_timed():
    tokenizer = Tokenizer.load(str(path()))
    assert measure(2, 3, tokenizer, len(tokenizer.vocabulary)) > 0
