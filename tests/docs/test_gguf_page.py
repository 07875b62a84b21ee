"""The architectures that docs/quantised-models.md lists are those that are served."""

import re

from core.gguf.architectures import ARCHITECTURES
from core.gguf.module_names import MODULES
from tests.docs.markdown import ROOT, page

PAGE = page(ROOT / "docs" / "quantised-models.md").text


def listed(row: str) -> list[str]:
    [names] = re.findall(rf"^\| {row} \| (.+) \|$", PAGE, re.MULTILINE)
    return re.sub(r" \(.*?\)", "", names).split(", ")


def test_the_page_lists_the_architectures_that_are_served() -> None:
    assert listed("architectures") == sorted(ARCHITECTURES)
    assert listed("of them without the compiled kernels, and on CUDA") == sorted(MODULES)
