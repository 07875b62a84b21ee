"""How each family writes its calls, for the grammar that makes a model write them so."""

from __future__ import annotations

from core.contract.grammar import CallMarkup

_HERMES = CallMarkup(
    trigger="<tool_call>",
    before='<tool_call>\n{"name": "{name}", "arguments": ',
    after="}\n</tool_call>",
    between="\n",
)
_QWEN3_CODER = CallMarkup(
    trigger="<tool_call>",
    before="<tool_call>\n<function={name}>\n",
    after="</function>\n</tool_call>",
    between="\n",
    arguments="xml",
    xml_before="<parameter={name}>\n",
    xml_after="\n</parameter>\n",
)
_LLAMA3_JSON = CallMarkup(
    trigger='{"name": "',
    before='{"name": "{name}", "parameters": ',
    after="}",
    between="; ",
    only_at_start=True,
)
_MISTRAL = CallMarkup(
    trigger="[TOOL_CALLS]",
    opening="[TOOL_CALLS][",
    before='{"name": "{name}", "arguments": ',
    after="}",
    between=", ",
    closing="]",
)
_MISTRAL_ARGS = CallMarkup(trigger="[TOOL_CALLS]", before="[TOOL_CALLS]{name}[ARGS]", after="")
_PYTHONIC = CallMarkup(
    trigger="[",
    opening="[",
    before="{name}(",
    after=")",
    between=", ",
    closing="]",
    only_at_start=True,
    arguments="keywords",
)
_DEEPSEEK = CallMarkup(
    trigger="<｜tool▁calls▁begin｜>",  # noqa: RUF001
    opening="<｜tool▁calls▁begin｜>",  # noqa: RUF001
    before="<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n",  # noqa: RUF001
    after="\n```<｜tool▁call▁end｜>",  # noqa: RUF001
    between="\n",
    closing="<｜tool▁calls▁end｜>",  # noqa: RUF001
)
_DEEPSEEK_PLAIN = CallMarkup(
    trigger="<｜tool▁calls▁begin｜>",  # noqa: RUF001
    opening="<｜tool▁calls▁begin｜>",  # noqa: RUF001
    before="<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>",  # noqa: RUF001
    after="<｜tool▁call▁end｜>",  # noqa: RUF001
    closing="<｜tool▁calls▁end｜>",  # noqa: RUF001
)


def call_markup(family: str, chat_template: str | None) -> CallMarkup:
    """Markup of a family; the template tells between the forms of Mistral and DeepSeek."""
    template = chat_template or ""
    match family:
        case "mistral":
            return _MISTRAL_ARGS if "[ARGS]" in template else _MISTRAL
        case "deepseek":
            return _DEEPSEEK if "```json" in template else _DEEPSEEK_PLAIN
        case _:
            return {
                "hermes": _HERMES,
                "qwen3_coder": _QWEN3_CODER,
                "llama3_json": _LLAMA3_JSON,
                "pythonic": _PYTHONIC,
            }[family]
