"""Grammars to token masks. Worker threads compile grammars; the grammar thread fills masks."""
