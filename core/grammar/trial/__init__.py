"""Trials: a new grammar is compiled in a child process, whose time and memory are limited."""
