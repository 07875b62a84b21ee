"""Models that turn texts into vectors or scores instead of more text."""
