"""Parsers of generated text: reasoning, content and tool calls. Sans-IO, one parser a choice."""
