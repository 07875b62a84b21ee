"""Probes, statistics, metrics and request records."""
