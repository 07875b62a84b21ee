"""Attacks, one small function each. Importing this package registers them."""

from tests.bystander.attacks import (
    bodies,
    connections,
    faults,
    floods,
    grammars,
    http_shapes,
    lists,
    prompts,
)

__all__ = [
    "bodies",
    "connections",
    "faults",
    "floods",
    "grammars",
    "http_shapes",
    "lists",
    "prompts",
]
