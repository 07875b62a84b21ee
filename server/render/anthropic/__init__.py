"""The engine's outputs to Anthropic's messages and events."""
