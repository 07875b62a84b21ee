"""Runs against an engine in this process, and what is measured inside it."""
