"""Charts: SVG documents, written as text."""
