"""``roseinfer bench``: measures an OpenAI-compatible server, or an engine in this process."""
