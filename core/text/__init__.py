"""Text: from prompts to token ids, and from token ids to text that can be sent.

Importing this package imports neither transformers nor torch. ``Tokenizer.load`` imports
transformers for what ``tokenizer_json`` does not read.
"""
