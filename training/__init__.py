"""Makes the built-in model: text generators, a tokenizer and a training loop.

One command runs all of it (CPU, under an hour)::

    python -m training.train --out core/builtin_model/weights
"""
