"""The tokenizer of a GGUF file."""
