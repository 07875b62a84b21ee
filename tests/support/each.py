"""each: the cases of a test in one loop, where thousands of tests would cost more than they do."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any


def each(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[..., Any]:
    """As ``pytest.mark.parametrize``, but one test runs all cases, in order, up to a failure.

    The cases share the fixtures, so the test must not change them. A failure names its case.
    """
    arguments = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
    rows = [tuple(case) if len(arguments) > 1 else (case,) for case in cases]
    assert rows

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def all_cases(*owner: Any, **fixtures: Any) -> None:
            for row in rows:
                case = dict(zip(arguments, row, strict=True))
                try:
                    test(*owner, **fixtures, **case)
                except BaseException as error:
                    error.add_note(f"case: {case!r:.1000}")
                    raise

        signature = inspect.signature(test)
        kept = [p for name, p in signature.parameters.items() if name not in arguments]
        assert len(kept) == len(signature.parameters) - len(arguments)
        all_cases.__signature__ = signature.replace(parameters=kept)  # what pytest reads
        return all_cases

    return decorate
