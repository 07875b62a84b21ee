"""Ollama's API to chat requests and texts to continue."""
