"""Executors of a DecoderSpec."""
