"""One folder an API: its routes, translation, rendering and errors.

Importing this package registers all APIs: a process without their routes that reads the table of
paths imports it first, as the router does.
"""

from __future__ import annotations

from server.apis import anthropic, ollama, openai, operation, pooling, responses

__all__ = ["anthropic", "ollama", "openai", "operation", "pooling", "responses"]
