"""``roseinfer bench``: load for any OpenAI-compatible server, or for an engine in this process."""
