"""What shelves keep, and whether their counts are right."""

from collections.abc import Iterator
from typing import Any

from server.tenants.shelves import Shelves


def all_on(shelves: Shelves[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Every value, with its owner."""
    for owner, shelf in shelves._shelves.items():
        for value, _ in shelf.values.values():
            yield owner, value


def check_shelves(shelves: Shelves[Any, Any]) -> None:
    """Fail unless the counts are those of what is kept, and within the limits."""
    kept = shelves._shelves.values()
    for shelf in kept:
        assert shelf.values, "an owner without values"
        assert shelf.num_bytes == sum(size for _, size in shelf.values.values())
    assert shelves._num_bytes == sum(shelf.num_bytes for shelf in kept)
    assert shelves._num_values == sum(len(shelf.values) for shelf in kept)
    assert shelves._num_values <= shelves._max_values
    assert shelves._num_bytes <= shelves._max_bytes
