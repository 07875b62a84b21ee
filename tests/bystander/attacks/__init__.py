"""Attacks, one small function each. Importing this package registers them."""

from tests.bystander.attacks import (
    bodies,
    connections,
    faults,
    floods,
    grammars,
    held,
    http_shapes,
    lists,
    messages,
    ollama,
    pooling,
    prompts,
    responses,
    route,
)

__all__ = [
    "bodies",
    "connections",
    "faults",
    "floods",
    "grammars",
    "held",
    "http_shapes",
    "lists",
    "messages",
    "ollama",
    "pooling",
    "prompts",
    "responses",
    "route",
]
