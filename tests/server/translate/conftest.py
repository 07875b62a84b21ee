import pytest

from core.contract.info import EngineInfo
from core.text.tokenizer import Tokenizer
from server.admission.checkpoint import is_abandoned
from tests.support.tokenizers import byte_level


@pytest.fixture(scope="session")
def tokenizer():
    return Tokenizer(byte_level())


@pytest.fixture
def info():
    def make(**facts):
        defaults = {
            "max_model_len": 100,
            "max_num_seqs": 8,
            "vocab_size": 400,
            "num_token_ids": 400,
            "num_kv_tokens": 1000,
            "dtype": "float32",
            "device": "cpu",
        }
        return EngineInfo(**(defaults | facts))

    return make


@pytest.fixture
def leave():
    """Let the client leave when a condition is true."""
    tokens = []
    yield lambda condition: tokens.append(is_abandoned.set(condition))
    for token in tokens:
        is_abandoned.reset(token)
