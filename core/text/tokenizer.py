"""Tokenizer: the model's tokenizer and chat template."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from core.contract.errors import InvalidRequest, first_line
from core.text.bytes_per_token import max_bytes_per_token, takes_blanks
from core.text.chat_templates import TEMPLATE_NAMES
from core.text.content_forms import Forms, fitted, forms_of
from core.text.detokenizer import Detokenizer, detokenizer_for
from core.text.special_text import FirstOfPairs, SpecialText, joins_encodings, new_mark, parts_in
from core.text.tokenizer_files import load_tokenizer
from core.text.vocabulary import Vocabulary

_UNKNOWN_LENGTH = 10**20  # transformers uses 10**30 for "unknown"
_MAX_TEMPLATES = 32
"""Templates whose forms of contents are remembered: requests may bring their own."""

_RESERVED = {
    *("messages", "sanitize_control_tokens", "padding", "truncation", "max_length"),
    *("return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs"),
}
"""Arguments of transformers' ``apply_chat_template`` that are no variables of templates."""

_GUARDS = ("\n", "<", "0")
_FIM_NAMES = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # noqa: RUF001
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),
    ("<PRE>", "<SUF>", "<MID>"),
    ("[PREFIX]", "[SUFFIX]", "[MIDDLE]"),
)


class Tokenizer:
    """Converts text to token ids and back, and messages to prompts.

    Immutable with pure methods, so any thread may call them. Encoding with a fast tokenizer
    releases the interpreter lock.
    """

    def __init__(self, tokenizer: Any, *, vocab_size: int | None = None) -> None:
        """Wrap a tokenizer and take ownership of it: a ``FastTokenizer``, or transformers' own.

        ``vocab_size`` is the model's, which may differ from the number of tokens. Ids from clients
        must be below it.
        """
        self._tokenizer = tokenizer
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        if self._backend is not None:
            self._backend.no_truncation()
            self._backend.no_padding()
            self._backend.encode_special_tokens = False
        self.vocabulary = Vocabulary.of(tokenizer, size=vocab_size)
        self.vocab_size = vocab_size or len(self.vocabulary)
        self.special_ids = self.vocabulary.special_ids
        self.bos_token_id: int | None = tokenizer.bos_token_id
        self.eos_token_id: int | None = tokenizer.eos_token_id
        self.pad_token_id: int | None = tokenizer.pad_token_id
        length = tokenizer.model_max_length
        self.model_max_length: int | None = int(length) if 0 < length <= _UNKNOWN_LENGTH else None
        template = tokenizer.chat_template
        named = template if isinstance(template, dict) else {"default": template}
        self.chat_template: str | None = named.get("default")
        self.tool_template: str | None = named.get("tool_use", self.chat_template)
        """The template of conversations with tools."""
        self._special_ids = {
            str(tokenizer.convert_ids_to_tokens(token_id)): token_id
            for token_id in self.special_ids
        }
        self._special_text = SpecialText(self._special_ids)
        reserved = inspect.signature(tokenizer.apply_chat_template).parameters
        self._reserved = {*reserved, *_RESERVED} - {"documents", "kwargs", "variables"}
        self._forms = lru_cache(_MAX_TEMPLATES)(self._forms_of)

    @classmethod
    def load(
        cls,
        source: str | Path,
        *,
        trust_remote_code: bool = False,
        chat_template: str | None = None,
        vocab_size: int | None = None,
    ) -> Tokenizer:
        """Load from a folder, a GGUF file or by a model's public name.

        ``chat_template`` replaces the model's template: a file, Jinja text, or one of
        ``TEMPLATE_NAMES``. Raises ModelLoadError.
        """
        tokenizer = load_tokenizer(
            source, trust_remote_code=trust_remote_code, chat_template=chat_template
        )
        return cls(tokenizer, vocab_size=vocab_size)

    def __len__(self) -> int:
        return self.vocab_size

    @cached_property
    def max_bytes_per_token(self) -> int | None:
        """The most bytes of a text that become one token; None if there is no bound."""
        return max_bytes_per_token(self._backend)

    @cached_property
    def takes_blanks(self) -> bool:
        """Whether a token takes all blanks beside it, however many."""
        return takes_blanks(self._backend)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Turn text into ids; the text of a special token becomes that token.

        ``add_special_tokens`` adds the tokens that the tokenizer puts around a text, usually BOS.
        Raises InvalidRequest if ``text`` is not valid Unicode.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest("The text is not valid Unicode: a lone surrogate.") from error
        if self._backend is None:
            slow_ids: list[int] = self._tokenizer.encode(
                text, add_special_tokens=add_special_tokens
            )
            return slow_ids
        # A batch of one: only batches release the interpreter lock, and "fast" skips offsets.
        batch = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        fast_ids: list[int] = batch[0].ids
        return fast_ids

    def special_ids_of(self, texts: Iterable[str]) -> dict[int, str]:
        """The special tokens among the texts, by id."""
        return {self._special_ids[text]: text for text in texts if text in self._special_ids}

    @cached_property
    def end_token_ids(self) -> frozenset[int]:
        """The tokenizer's EOS, and what its chat templates write after an assistant's text."""
        texts, bos = [*self._special_ids], self._tokenizer.bos_token
        ends = {
            turn_end(partial(self.render_chat, chat_template=template), texts, bos)
            for template in {self.chat_template, self.tool_template} - {None}
        }
        eos = () if self.eos_token_id is None else (self.eos_token_id,)
        return frozenset({*eos, *self.special_ids_of(filter(None, ends))})

    def token_id(self, token: str) -> int | None:
        """The id of a token of the vocabulary, None if it has no such token."""
        backend = self._backend
        found: int | None = (
            self._tokenizer.get_vocab().get(token)
            if backend is None
            else backend.token_to_id(token)
        )
        return found

    def first_of_pairs(self, text: str) -> FirstOfPairs:
        """Tokenize the first text of pairs. Raises InvalidRequest."""
        if self._backend is None:
            raise InvalidRequest("This model's tokenizer takes no pairs of texts.")
        has_types = "token_type_ids" in self._tokenizer.model_input_names
        return FirstOfPairs(
            self._backend, text, has_types=has_types, joins_encodings=self._joins_encodings
        )

    @cached_property
    def _joins_encodings(self) -> bool:
        return joins_encodings(self._backend)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Turn ids into text as a detokenizer does."""
        detokenizer = self.detokenizer((), skip_special_tokens=skip_special_tokens)
        return "".join([*map(detokenizer.feed, ids), detokenizer.finish()])

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of a token."""
        return self.vocabulary.token_bytes(token_id)

    def token_text(self, token_id: int) -> str:
        r"""Return a token as text, invalid UTF-8 as ``\xe2\x82``."""
        return self.token_bytes(token_id).decode(errors="backslashreplace")

    def detokenizer(
        self, prompt_token_ids: Sequence[int], *, skip_special_tokens: bool = True
    ) -> Detokenizer:
        """Make the detokenizer of one sequence with this prompt."""
        return detokenizer_for(
            self.vocabulary,
            prompt_token_ids=prompt_token_ids,
            skip_special_tokens=skip_special_tokens,
        )

    def start_token_ids(self) -> list[int]:
        """Return the ids of an empty prompt: the token that begins a document.

        Raises InvalidRequest if the tokenizer has neither BOS nor EOS.
        """
        for token_id in (self.bos_token_id, self.eos_token_id):
            if token_id is not None:
                return [token_id]
        raise InvalidRequest(
            "The prompt is empty, and this model has no token that begins a document.",
            param="prompt",
        )

    def fim_token_ids(self) -> tuple[int, int, int] | None:
        """Return the tokens before prefix, suffix and middle; None if the model has none."""
        for names in _FIM_NAMES:
            prefix, suffix, middle = map(self.token_id, names)
            if prefix is not None and suffix is not None and middle is not None:
                return prefix, suffix, middle
        return None

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template: str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """Render messages with the chat template.

        Contents are strings or lists of text parts; the template gets what it reads, see
        ``core.text.content_forms``. ``chat_template`` is Jinja text that replaces the model's
        template; ``template_kwargs`` are more variables for it. Raises InvalidRequest with the
        template's error.
        """
        template_kwargs = dict(template_kwargs or {})
        if taken := self._reserved & template_kwargs.keys():
            raise InvalidRequest(
                f"chat_template_kwargs must not set {min(taken)!r}.", param="chat_template_kwargs"
            )
        if chat_template is None and self._tokenizer.chat_template is None:
            raise InvalidRequest(
                "This model has no chat template, so it takes no messages. The operator can give "
                "it one with --chat-template: a file, or one of the names "
                f"{', '.join(TEMPLATE_NAMES)}.",
                param="messages",
                code="chat_template_missing",
            )
        if not messages:
            raise InvalidRequest("messages must hold at least one message.", param="messages")
        template = chat_template
        if template is None:
            template = self.tool_template if tools else self.chat_template
        return self._rendered(
            fitted(messages, self._forms(template)),
            tools=list(tools) if tools else None,
            chat_template=chat_template,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            **template_kwargs,
        )

    def _forms_of(self, template: str | None) -> Forms:
        return forms_of(partial(self._rendered, chat_template=template, add_generation_prompt=True))

    def _rendered(self, messages: Sequence[Mapping[str, Any]], /, **arguments: Any) -> str:
        """Render contents as they are. Raises InvalidRequest."""
        try:
            rendered: str = self._tokenizer.apply_chat_template(
                list(messages), tokenize=False, **arguments
            )
        except Exception as error:  # a template is a program and may raise anything
            raise InvalidRequest(
                f"The chat template does not take these messages: {first_line(error)}",
                param="messages",
            ) from error
        return rendered

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template: str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        check_size: Callable[[str], slice] = lambda text: slice(0, len(text)),
    ) -> list[int]:
        """Render messages and encode the result; arguments and errors are those of ``render_chat``.

        Only the template makes special tokens: no BOS is added to its text, and the text of
        special tokens in ``messages``, ``tools`` or ``template_kwargs`` stays text. Added tokens
        that are not special, such as ``<tool_call>``, are recognised everywhere. ``check_size``
        is called with the rendered text before it is encoded; it may raise, and returns the part
        to encode.
        """
        mark = new_mark()
        given = [messages, tools, template_kwargs]
        try:
            if self._special_text.occurs_in(given):
                messages, tools, template_kwargs = self._special_text.marked(given, mark)
        except RecursionError as error:
            raise InvalidRequest("messages are nested too deeply.", param="messages") from error
        rendered = self.render_chat(
            messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            chat_template=chat_template,
            template_kwargs=template_kwargs,
        )
        pieces = rendered.split(mark)
        pieces = parts_in(pieces, check_size("".join(pieces)))
        ids = self.encode(pieces[0], add_special_tokens=False)
        for piece in pieces[1:]:
            ids += self._encode_inner(piece)
        return ids

    def _encode_inner(self, text: str) -> list[int]:
        """Encode text that follows other text.

        Some tokenizers put a space before every text. To avoid it, ``text`` is encoded after a
        character that never joins with it, and the tokens of that character are dropped.
        """
        plain = self.encode(text, add_special_tokens=False)
        if b"".join(map(self.token_bytes, plain)) == text.encode():
            return plain
        for guard in _GUARDS:
            before = self.encode(guard, add_special_tokens=False)
            ids = self.encode(guard + text, add_special_tokens=False)
            if ids[: len(before)] == before:
                return ids[len(before) :]
        return plain


_USER, _ANSWER = "5830174296", "4721908365"


def turn_end(
    render: Callable[..., str], special_texts: Sequence[str], bos_token: str | None
) -> str | None:
    """Return the special token that ends an assistant's turn, as text; None if there is none.

    ``render`` takes a conversation and ``add_generation_prompt``, and raises InvalidRequest for
    one that the template rejects. Blanks may precede the token. A token that begins a text or
    a turn ends nothing. Some templates end only turns that others follow, so that is tried if
    nothing follows an answer at the end.
    """
    if not special_texts:
        return None
    longest_first = sorted(special_texts, key=len, reverse=True)
    special = re.compile("|".join(map(re.escape, longest_first)))
    turns = [{"role": "user", "content": _USER}, {"role": "assistant", "content": _ANSWER}]
    try:
        beginnings = {bos_token, *_beginnings(render, special, turns[:1])}
    except InvalidRequest:  # no template, or one that rejects this conversation
        return None
    for conversation in (turns, [*turns, turns[0]]):
        try:
            rendered = render(conversation, add_generation_prompt=False)
        except InvalidRequest:
            continue
        _, _, after = rendered.rpartition(_ANSWER)
        found = special.match(after.lstrip())
        if found and found[0] not in beginnings:
            return found[0]
    return None


def _beginnings(render: Callable[..., str], special: Any, turns: Sequence[Any]) -> set[str]:
    """The special tokens that begin turns: the last one before a text, and those of a prompt."""
    closed = render(turns, add_generation_prompt=False)
    prompt = render(turns, add_generation_prompt=True).removeprefix(closed)
    before, _, _ = closed.partition(_USER)
    return {*special.findall(before)[-1:], *special.findall(prompt)}
