"""Grammars, and which tokens go on with them."""
