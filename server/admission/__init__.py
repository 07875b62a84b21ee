"""Admission: one ticket per request bounds what it may cost, from its headers to its last byte."""
