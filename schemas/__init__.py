"""Requests and responses as msgspec Structs.

Imports msgspec and the standard library only. These types check the JSON of single fields. The
server checks what depends on the model, the vocabulary or several fields.
"""
