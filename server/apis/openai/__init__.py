"""OpenAI's chat, completions and models, with tokenization and ``/generate``."""
