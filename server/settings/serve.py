"""Flags of ``serve`` beside those of the model and the engine."""

from __future__ import annotations

from argparse import ArgumentTypeError
from importlib.util import find_spec
from ipaddress import ip_network

from core.builtin_model import MODEL_ID
from server.parsers.reasoning import THINKING_TAGS
from server.parsers.tool import TOOL_PARSERS
from server.settings.flags import Flag, Repeated, Switch, named
from server.settings.key_file import KeyFile
from server.settings.types import (
    OneOf,
    Rates,
    not_negative,
    path,
    port,
    positive,
    seconds,
    size,
    timeout,
)

_PACKAGES = ("opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def endpoint(text: str) -> str:
    """Convert the URL of a collector, for which the optional packages must be there."""
    if not text.startswith(("http://", "https://")):
        raise ArgumentTypeError(f"{text} is no URL of http or https")
    try:
        are_installed = all(map(find_spec, _PACKAGES))
    except ModuleNotFoundError:  # a parent is missing
        are_installed = False
    if not are_installed:
        raise ArgumentTypeError("traces need more packages: pip install 'roseinfer[otel]'")
    return text


def _rates(text: str) -> Rates:
    """Convert ``REQUESTS`` or ``REQUESTS,TOKENS``; 0 is no limit."""
    parts = text.split(",")
    if len(parts) > 2:
        raise ArgumentTypeError(f"{text} is not REQUESTS or REQUESTS,TOKENS")
    return Rates(*map(not_negative, parts))


def key_file(text: str) -> KeyFile:
    """Read a file of keys. It is not read again at start: it may be a pipe."""
    return KeyFile.read(path(text))


def networks(text: str) -> str:
    """Convert ``*``, or addresses and networks joined by commas."""
    for network in text.split(",") if text != "*" else ():
        try:
            ip_network(network.strip())
        except ValueError:
            raise ArgumentTypeError(f"{network} is not an address or network") from None
    return text


AUTO, NONE = "auto", "none"  # parsers: found from the chat template, and none at all

SERVER_FLAGS = named(
    host=Flag("address to listen on"),
    port=Flag("port to listen on; 0 picks a free one and prints it", port),
    served_model_names=Repeated(
        "model id in requests, any number of times; answers have the first",
        name="served-model-name",
        metavar="NAME",
        unset=f"hub id, name of the directory or file, or {MODEL_ID}",
    ),
    accept_any_model_name=Switch(
        "serve requests for any model id, for clients that have a fixed one"
    ),
    stream_interval=Flag("tokens in a streamed piece, after the first", positive),
    tokenizer_workers=Flag(
        "threads that render chat templates and tokenize prompts",
        positive,
        aliases=("tokenize-workers",),
    ),
    drain_timeout=Flag("seconds that running requests get to finish on SIGTERM or Ctrl-C", seconds),
    keep_alive_interval=Flag(
        "seconds of silence after which a stream sends a comment; 0: never", seconds
    ),
    clamp_max_tokens=Switch(
        "shorten answers that do not fit into the context instead of refusing their requests"
    ),
    trust_request_chat_template=Switch("let requests bring their own chat template"),
    strict_fields=Switch(
        "refuse unknown fields of requests; else they are ignored and named in a header"
    ),
    strict_schemas=Switch(
        "refuse schemas with keywords that cannot be enforced; else the keywords are dropped "
        "and named in a header and in the answer"
    ),
    keep_billing_header=Switch(
        "keep the line x-anthropic-billing-header at the head of system prompts of "
        "/v1/messages, which differs in every request, so that no prefix is found in the cache"
    ),
    tool_call_parser=Flag(
        "format in which the model writes tool calls; auto: found from its chat template",
        OneOf((AUTO, NONE, *TOOL_PARSERS)),
    ),
    reasoning_parser=Flag(
        "tags in which the model thinks; auto: found from its chat template",
        OneOf((AUTO, NONE, *THINKING_TAGS)),
    ),
    ui=Switch("serve no page at /", name="no-ui"),
    log_level=Flag("least severity that is logged", OneOf(("debug", "info", "warning", "error"))),
    log_format=Flag("form of a line of the log", OneOf(("text", "json"))),
    request_log=Flag(
        "records of ended requests that are kept for GET /requests; 0: none", not_negative
    ),
    log_prompts=Switch("keep prompts and answers in the records of requests"),
)

LOAD_FLAGS = named(
    max_queued_requests=Flag("requests that may wait; one more is answered 429", not_negative),
    max_queued_prompt_tokens=Flag(
        "prompt tokens of all running and waiting requests; more are answered 429", positive
    ),
    max_queued_output_tokens=Flag(
        "tokens that all running and waiting requests may generate; more are answered 429", positive
    ),
    max_body_size=Flag("bytes of a request body; a larger one gets 413", size),
    max_answer_logprobs=Flag(
        "log-probabilities in one answer: tokens times alternatives + 1; more are a 400", positive
    ),
    max_stored_responses=Flag(
        "responses of /v1/responses that are kept in memory; 0: none", not_negative
    ),
    max_stored_response_bytes=Flag(
        "bytes of the responses that are kept, with their conversations", size
    ),
    request_timeout=Flag(
        "seconds that a request may take, waiting included; then it is answered 504, or its "
        "stream ends with an error; X-Request-Timeout of a request may be shorter; 0: no limit",
        seconds,
    ),
    rate_limit=Flag(
        "requests, and tokens of prompts and answers, that each key or address gets in a "
        "minute; more are answered 429; 0: no limit",
        _rates,
        metavar="REQUESTS[,TOKENS]",
        unset="none",
    ),
)

ACCESS_FLAGS = named(
    api_keys=Repeated(
        "require this key from clients; may be repeated",
        name="api-key",
        metavar="KEY",
        is_secret=True,
    ),
    api_key_file=Flag(
        "require a key of this file, one KEY or NAME:KEY a line; read again on SIGHUP",
        key_file,
        metavar="FILE",
        unset="none",
    ),
    share_prefix_cache=Switch(
        "let API keys reuse each other's cached prefixes and compiled grammars, which shows "
        "what others sent"
    ),
    allowed_hosts=Repeated(
        "answer requests for this host name (Host header); * is any; may be repeated",
        metavar="HOST",
        unset="the server's own names on loopback, else any",
    ),
    allowed_origins=Repeated(
        "let web pages of this origin call; * is any; may be repeated", metavar="ORIGIN"
    ),
    forwarded_allow_ips=Flag(
        "believe X-Forwarded-For of proxies at these addresses or networks, joined by "
        "commas; * is any",
        networks,
        metavar="IPS",
        unset="none",
    ),
)

CONNECTION_FLAGS = named(
    uds=Flag(
        "listen on this Unix socket instead of host and port; owner and group may connect",
        path,
        metavar="PATH",
    ),
    ssl_certfile=Flag(
        "serve HTTPS with this certificate chain (PEM); it may hold the key", path, metavar="PATH"
    ),
    ssl_keyfile=Flag("key of the certificate (PEM, no password)", path, metavar="PATH"),
    max_connections=Flag(
        "connections that are served, as far as descriptors last; more are answered 503", positive
    ),
    idle_timeout=Flag("seconds after which a connection without a request is closed", timeout),
    write_timeout=Flag("seconds after which a client that does not read is disconnected", timeout),
    otlp_traces_endpoint=Flag(
        "send a span of each request to this OpenTelemetry collector (OTLP over HTTP), as "
        "http://localhost:4318/v1/traces; needs roseinfer[otel]",
        endpoint,
        metavar="URL",
    ),
)
