"""Contrast of the colours in both themes (WCAG 2.2, 1.4.3 and 1.4.11)."""

import re

import pytest

from server.ui.routes import read_files

DESIGN = read_files()["css/design.css"].content.decode()
PAIRS = re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\);", DESIGN)
THEMES = {
    "light": {name: light for name, light, _ in PAIRS},
    "dark": {name: dark for name, _, dark in PAIRS},
}

TEXTS = {
    "text": ("background", "surface", "raised", "accent-soft", "p0", "p1", "p2", "p3", "p4", "p5"),
    "muted": ("background", "surface", "raised"),
    "accent": ("background", "surface", "accent-soft", "raised"),
    "on-accent": ("accent", "accent-hover"),
    "good": ("surface", "good-soft"),
    "warn": ("surface", "warn-soft"),
    "bad": ("surface", "bad-soft", "background"),
}
"""Colour of text: the grounds that it is on."""

PARTS = {
    "line-strong": ("background", "surface"),
    "series-running": ("surface",),
    "series-waiting": ("surface",),
    "series-rate": ("surface",),
}
"""Borders of fields and lines of charts."""


def channels(colour):
    return [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def over(colour, ground):
    """A colour with an alpha, laid over another."""
    alpha = int(colour[7:9], 16) / 255 if len(colour) == 9 else 1
    return [
        alpha * c + (1 - alpha) * g for c, g in zip(channels(colour), channels(ground), strict=True)
    ]


def luminance(rgb):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_formula():
    assert contrast([0, 0, 0], [1, 1, 1]) == pytest.approx(21)
    assert contrast(channels("#777777"), [1, 1, 1]) == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("colours", "least"), [(TEXTS, 4.5), (PARTS, 3.0)])
def test_contrast(theme, colours, least):
    palette = THEMES[theme]
    low = {
        (colour, ground): round(found, 2)
        for colour, grounds in colours.items()
        for ground in grounds
        if (found := contrast(channels(palette[colour]), over(palette[ground], palette["surface"])))
        < least
    }
    assert not low
