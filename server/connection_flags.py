"""Flags of the server's sockets, and of where it sends traces."""

from __future__ import annotations

from server import flag_types
from server.flags import Flag
from server.trace_flags import TRACE_FLAGS

CONNECTION_FLAGS = (
    Flag(
        name="uds",
        help="listen on this Unix socket instead of host and port; owner and group may connect",
        convert=flag_types.path,
        metavar="PATH",
    ),
    Flag(
        name="ssl-certfile",
        help="serve HTTPS with this certificate chain (PEM); it may hold the key",
        convert=flag_types.path,
        metavar="PATH",
    ),
    Flag(
        name="ssl-keyfile",
        help="key of the certificate (PEM, no password)",
        convert=flag_types.path,
        metavar="PATH",
    ),
    Flag(
        name="max-connections",
        help="connections that are served, as far as descriptors last; more are answered 503",
        convert=flag_types.positive,
    ),
    Flag(
        name="idle-timeout",
        help="seconds after which a connection without a request is closed",
        convert=flag_types.timeout,
    ),
    Flag(
        name="write-timeout",
        help="seconds after which a client that does not read is disconnected",
        convert=flag_types.timeout,
    ),
    *TRACE_FLAGS,
)
