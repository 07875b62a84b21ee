"""Trials: a grammar is compiled in a child process first, which its cost cannot harm."""
