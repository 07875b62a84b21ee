"""The two Struct bases, and the rules for null and missing keys.

Requests: an optional field is `X | None = None`. JSON null and a missing key both mean "not given"
and decode to None. Zero, false, "" and [] are values. Unknown keys of nested objects are ignored.
The requests refuse unknown keys, which ``server.http.decoding`` leaves out before it decodes.

Responses: a required key is a plain field, written even if it is null. A key that may be missing is
`X | UnsetType = UNSET`, not written if UNSET. A key that may be missing, null or an object (`usage`
in stream chunks) is `X | UnsetType | None = UNSET`.

Every Struct repeats `frozen=True, kw_only=True`: msgspec applies kw_only to a class's own fields
only, and type checkers take neither option from a base.
"""

import msgspec


class RequestModel(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of everything a client sends.

    Not tracked by the garbage collector: values decoded from JSON contain no cycles.
    """


class ResponseModel(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of everything a client receives. Keys are written in the order of declaration.

    Not tracked by the garbage collector: responses contain no cycles. Floats must be finite,
    because msgspec writes NaN and infinities as null.
    """
