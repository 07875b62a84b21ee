"""Write models of transformers as GGUF files."""
