import functools

import msgspec
import pytest

from core.contract.params import Thinking
from schemas.responses_request import ResponsesRequest
from schemas.tools import FunctionDefinition
from server.parsers.tool import tool_parser
from server.render.chat_options import ChatOptions
from server.render.responses.output import ItemOptions
from server.render.responses.renderer import ResponsesRenderer
from server.served_model import ServedModel
from server.settings import Settings
from server.translate.responses.echo import begun_response
from tests.support.engines import loaded

TOOLS = [FunctionDefinition(name=name) for name in ("get_weather", "ping", "files__open")]


@pytest.fixture
def generate(generate):
    """As ``generate``, of a model that thinks, without log-probabilities unless asked for."""
    thinking = Thinking(begin="<think>", end="</think>", end_token_ids=(), is_separate=True)
    return functools.partial(generate, thinking=thinking, logprobs=False)


@pytest.fixture
def make(envelope, asked):
    """Make a renderer; ``fields`` are those of the request. It stores into ``renderer.kept``."""

    def make(*, num_top=None, has_tools=True, items=None, **fields):
        common, _ = envelope(asked(), num_choices=1, num_top=num_top)
        model = ServedModel.of(Settings(), loaded(object()))
        request = msgspec.convert({"model": "m", "input": "hi"} | fields, ResponsesRequest)
        response = begun_response(request, common.head, model, is_kept=True)
        parser = functools.partial(tool_parser("hermes"), TOOLS, parallel=True)
        options = ChatOptions(new_parser=parser if has_tools else None)
        kept = []
        renderer = ResponsesRenderer(common, options, items or ItemOptions(), response, kept.append)
        renderer.kept = kept
        return renderer

    return make
