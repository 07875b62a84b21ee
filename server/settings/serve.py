"""Flags of the server's sockets, and of where it sends traces.

The flag of traces.

Flags of load: how much may wait, for how long, and how much a client gets.

Flags of access: who may use the server, and from where.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from importlib.util import find_spec
from ipaddress import ip_network

from server.settings import types as flag_types
from server.settings.flags import Flag, Repeated, Switch
from server.settings.key_file import KeyFile, KeyFileError
from server.settings.types import Rates, not_negative, path, positive, seconds, size

_PACKAGES = ("opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def endpoint(text: str) -> str:
    """Convert the URL of a collector, for which the optional packages must be there."""
    if not text.startswith(("http://", "https://")):
        raise ArgumentTypeError(f"{text} is no URL of http or https")
    if not all(map(_is_installed, _PACKAGES)):
        raise ArgumentTypeError("traces need more packages: pip install 'roseinfer[otel]'")
    return text


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a parent is missing
        return False


TRACE_FLAGS = (
    Flag(
        name="otlp-traces-endpoint",
        help="send a span of each request to this OpenTelemetry collector (OTLP over HTTP), as "
        "http://localhost:4318/v1/traces; needs roseinfer[otel]",
        metavar="URL",
        convert=endpoint,
    ),
)


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


def _rates(text: str) -> Rates:
    """Convert ``REQUESTS`` or ``REQUESTS,TOKENS``; 0 is no limit."""
    parts = text.split(",")
    if len(parts) > 2:
        raise ArgumentTypeError(f"{text} is not REQUESTS or REQUESTS,TOKENS")
    return Rates(*map(not_negative, parts))


LOAD_FLAGS: tuple[Flag, ...] = (
    Flag(
        name="max-queued-requests",
        help="requests that may wait; one more is answered 429",
        convert=not_negative,
    ),
    Flag(
        name="max-queued-prompt-tokens",
        help="prompt tokens of all running and waiting requests; more are answered 429",
        convert=positive,
    ),
    Flag(
        name="max-queued-output-tokens",
        help="tokens that all running and waiting requests may generate; more are answered 429",
        convert=positive,
    ),
    Flag(name="max-body-size", help="bytes of a request body; a larger one gets 413", convert=size),
    Flag(
        name="max-answer-logprobs",
        help="log-probabilities in one answer: tokens times alternatives + 1; more are a 400",
        convert=positive,
    ),
    Flag(
        name="max-stored-responses",
        help="responses of /v1/responses that are kept in memory; 0: none",
        convert=not_negative,
    ),
    Flag(
        name="max-stored-response-bytes",
        help="bytes of the responses that are kept, with their conversations",
        convert=size,
    ),
    Flag(
        name="request-timeout",
        help="seconds that a request may take, waiting included; then it is answered 504, or its "
        "stream ends with an error; X-Request-Timeout of a request may be shorter; 0: no limit",
        convert=seconds,
    ),
    Flag(
        name="rate-limit",
        help="requests, and tokens of prompts and answers, that each key or address gets in a "
        "minute; more are answered 429; 0: no limit",
        convert=_rates,
        metavar="REQUESTS[,TOKENS]",
        default_text="none",
    ),
)


def key_file(text: str) -> KeyFile:
    """Read a file of keys. It is not read again at start: it may be a pipe."""
    try:
        return KeyFile.read(path(text))
    except KeyFileError as error:
        raise ArgumentTypeError(str(error)) from None


def networks(text: str) -> str:
    """Convert ``*``, or addresses and networks joined by commas."""
    for network in text.split(",") if text != "*" else ():
        try:
            ip_network(network.strip())
        except ValueError:
            raise ArgumentTypeError(f"{network} is not an address or network") from None
    return text


ACCESS_FLAGS: tuple[Flag, ...] = (
    Repeated(
        name="api-key",
        help="require this key from clients; may be repeated",
        field="api_keys",
        metavar="KEY",
        is_secret=True,
    ),
    Flag(
        name="api-key-file",
        help="require a key of this file, one KEY or NAME:KEY a line; read again on SIGHUP",
        convert=key_file,
        metavar="FILE",
        default_text="none",
    ),
    Switch(
        name="share-prefix-cache",
        help="let API keys reuse each other's cached prefixes and compiled grammars, which shows "
        "what others sent",
    ),
    Repeated(
        name="allowed-hosts",
        help="answer requests for this host name (Host header); * is any; may be repeated",
        metavar="HOST",
        default_text="the server's own names on loopback, else any",
    ),
    Repeated(
        name="allowed-origins",
        help="let web pages of this origin call; * is any; may be repeated",
        metavar="ORIGIN",
    ),
    Flag(
        name="forwarded-allow-ips",
        help="believe X-Forwarded-For of proxies at these addresses or networks, joined by "
        "commas; * is any",
        convert=networks,
        metavar="IPS",
        default_text="none",
    ),
)
