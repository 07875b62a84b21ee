"""GGUF files: reader, block types, configuration, names of tensors, tokenizer."""
