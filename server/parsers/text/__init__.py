"""Incremental readers of JSON, Python literals and typed text."""
