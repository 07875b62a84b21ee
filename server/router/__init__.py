"""``roseinfer route``: one address for many models. Imports no torch and nothing of the engine."""
