"""Llama 3.1 and later: bare JSON objects."""

from core.contract.grammar import CallMarkup
from server.parsers.tool.json_call import JsonCallParser

_TAGS, _END = ("<|python_tag|>", "<|python_start|>"), "<|python_end|>"
_BETWEEN = ";"


class Llama3JsonParser(JsonCallParser):
    """``{"name": "f", "parameters": {…}}``, perhaps after ``<|python_tag|>``; ``;`` separates."""

    name = "llama3_json"
    signs = (('"name": function name, "parameters"',), ("<|python_tag|>", '"parameters"'))
    begin_tags = _TAGS
    end_tags = (_BETWEEN, _END)
    is_bare = True
    openings = (*_TAGS, "{")
    markers = (*_TAGS, _END)
    markup = CallMarkup(
        trigger='{"name": "',
        before='{"name": "{name}", "parameters": ',
        after="}",
        between=_BETWEEN + " ",
        only_at_start=True,
    )
