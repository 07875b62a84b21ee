"""A model's files: where they are, what they say, and what was loaded from them."""
