"""The proof of a spec: a tiny twin of a configuration against transformers, remembered."""
