"""write_chart: a chart as an SVG or PNG file."""

from __future__ import annotations

from pathlib import Path

from bench.errors import BenchError

SUFFIXES = (".svg", ".png")

PNG_SCALE = 2
"""Pixels of a PNG for one of the SVG."""

FONTS = ("Liberation Sans", "DejaVu Sans", "Noto Sans", "Ubuntu", "Cantarell", "Open Sans")
"""Names that systems have instead of the usual ones."""

_PROBE = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 20" font-family="Helvetica, Arial, '
    'sans-serif"><text x="2" y="16">{}</text></svg>'
)


def write_chart(document: str, file: Path) -> None:
    """Write it in the form that the file's name says. Raises BenchError."""
    data = png_of(document) if file.suffix == ".png" else document.encode()
    try:
        file.write_bytes(data)
    except OSError as error:
        raise BenchError(f"cannot write {file}: {error.strerror}") from error


def check_chart(file: Path) -> None:
    """Raise BenchError if a chart could not be written, before anything is measured."""
    if not file.parent.is_dir():
        raise BenchError(f"cannot write {file}: no such directory")
    if file.suffix == ".png":
        png_of(_PROBE.format(""))


def png_of(document: str) -> bytes:
    """Draw an SVG document. Raises BenchError without the package or without a font."""
    try:
        import resvg_py  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise BenchError(
            "a PNG needs the package resvg-py (pip install 'roseinfer[bench]'); an SVG does not"
        ) from None

    def drawn(text: str, font: str) -> bytes:
        return bytes(resvg_py.svg_to_bytes(svg_string=text, zoom=PNG_SCALE, sans_serif_family=font))

    for font in FONTS:
        if drawn(_PROBE.format("text"), font) != drawn(_PROBE.format(""), font):
            return drawn(document, font)
    raise BenchError("a PNG needs a font on this machine, such as DejaVu Sans; an SVG does not")
