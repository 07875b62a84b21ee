"""The engine's outputs to Ollama's lines."""
