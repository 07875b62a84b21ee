"""Runs against a server: a light HTTP client and its load."""
