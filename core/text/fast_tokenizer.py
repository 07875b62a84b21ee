"""FastTokenizer: a tokenizer of the ``tokenizers`` library, its special tokens and templates."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tokenizers import AddedToken
from tokenizers.processors import TemplateProcessing

from core.text.chat_templates.render import render

NAMES = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
"""Names of special tokens that every family may have."""

UNBOUNDED = int(1e30)
"""Tokens of a text for which no bound is known."""

Token = str | AddedToken


class FastTokenizer:
    """The part of transformers' fast tokenizers that ``Tokenizer`` reads, without transformers.

    Immutable after ``chat_template`` is set; any thread may use it.
    """

    def __init__(
        self,
        backend: Any,
        named: Mapping[str, Token],
        *,
        chat_template: str | dict[str, str] | None,
        model_max_length: Any = UNBOUNDED,
        model_input_names: Collection[str] = (),
    ) -> None:
        """Own a ``tokenizers.Tokenizer``; ``named`` are special tokens such as ``eos_token``."""
        self.backend_tokenizer = backend
        self.special_tokens_map = {name: str(token) for name, token in named.items()}
        self.chat_template = chat_template
        self.model_max_length = model_max_length
        self.model_input_names = model_input_names
        self.bos_token = self.special_tokens_map.get("bos_token")
        self.unk_token = self.special_tokens_map.get("unk_token")
        self.bos_token_id, self.eos_token_id, self.unk_token_id, _, self.pad_token_id, *_ = map(
            self._id_of, NAMES
        )

    def __len__(self) -> int:
        size: int = self.backend_tokenizer.get_vocab_size()
        return size

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        """The tokens that are looked for in a text before it is split, by id."""
        tokens: dict[int, AddedToken] = self.backend_tokenizer.get_added_tokens_decoder()
        return tokens

    def convert_ids_to_tokens(self, token_id: int) -> str | None:
        """The token of an id as the vocabulary has it, None if there is none."""
        token: str | None = self.backend_tokenizer.id_to_token(token_id)
        return token

    def decode(
        self, ids: Sequence[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool
    ) -> str:
        """The text of ids. Spaces are never cleaned up."""
        assert not clean_up_tokenization_spaces
        text: str = self.backend_tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        return text

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]],
        *,
        tokenize: bool,
        chat_template: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> str:
        """Render a conversation; arguments and errors are those of ``render``.

        ``chat_template`` is Jinja text, or the name of one of several templates. Without it the
        template is "tool_use", if there are tools and such a template, or else the default one.
        """
        assert not tokenize
        own = self.chat_template
        named = own if isinstance(own, dict) else {"default": own}
        if chat_template is None:
            has_own = tools is not None and "tool_use" in named
            chat_template = named.get("tool_use" if has_own else "default")
        else:
            chat_template = named.get(chat_template, chat_template)
        if chat_template is None:
            raise ValueError(f"of the templates {', '.join(sorted(named))} none is the default")
        return render(
            chat_template,
            conversation,
            tools=tools,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            variables=self.special_tokens_map | variables,
        )

    def _id_of(self, name: str) -> int | None:
        token = self.special_tokens_map.get(name)
        return None if token is None else self.backend_tokenizer.token_to_id(token)


def add_missing(
    backend: Any,
    named: Mapping[str, Token],
    others: Sequence[Token] = (),
    added: Sequence[AddedToken] = (),
) -> None:
    """Add tokens to a backend: ``added``, and the special tokens that are not added yet.

    As transformers does it: tokens of the vocabulary keep their ids, others get the next ones.
    """
    tokens: list[Token] = [*added]
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    known |= {str(token) for token in added}
    for token in (*named.values(), *others):
        if str(token) not in known and token not in tokens:
            tokens.append(token)
    special = {*map(str, named.values())}
    for i, token in enumerate(tokens):
        if isinstance(token, str):
            tokens[i] = AddedToken(token, special=True)
        elif str(token) in special:
            token.special = True
    backend.add_tokens(tokens)
    if backend.post_processor is None:
        backend.post_processor = TemplateProcessing(single="$A:0", pair="$A:0 $B:1")
