"""Parts of SVG documents that all charts share. Coordinates are pixels."""

from __future__ import annotations

from xml.sax.saxutils import escape

FONT = 'font-family="Helvetica, Arial, sans-serif" font-size="14"'

LIGHT = """\
  .card { fill: #ffffff; stroke: #d0d7de; }
  text { fill: #1f2328; }
  .note { fill: #59636e; font-size: 12px; }
  .title { font-size: 17px; font-weight: bold; }"""

DARK = """\
    .card { fill: #0d1117; stroke: #3d444d; }
    text { fill: #f0f6fc; }
    .note { fill: #9198a1; }"""


def style(light: str, dark: str) -> str:
    """Return the rules of a chart after the shared ones. ``dark`` is for readers in dark mode."""
    scheme = "@media (prefers-color-scheme: dark)"
    return f"{LIGHT}\n{light}\n  {scheme} {{\n{DARK}\n{dark}\n  }}\n"


def opening(width: int, height: int, title: str, description: str, rules: str) -> list[str]:
    """Begin a document: a card of this size with a title and rules made by ``style``."""
    box = f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="title desc"'
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} {FONT}>',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="desc">{escape(description)}</desc>',
        f"<style>\n{rules}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
    ]


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    """A line of text; ``kind`` is its class, ``anchor`` start, middle or end."""
    attributes = f' class="{kind}"' if kind else ""
    attributes += f' text-anchor="{anchor}"' if anchor else ""
    return f'<text{attributes} x="{x:g}" y="{y:g}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line of this class."""
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def path(points: list[tuple[float, float]], kind: str) -> str:
    """A line through points."""
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{kind}" points="{joined}"/>'


def dot(x: float, y: float, kind: str) -> str:
    """A point that can be seen."""
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'
