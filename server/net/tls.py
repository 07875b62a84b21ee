"""TLS: the server's certificate, checked before anything else starts."""

from __future__ import annotations

import ssl
from pathlib import Path

from server.net.listener import ListenError


class CertificateError(ListenError):
    """The certificate or its key cannot be used."""


def tls_context(certfile: str | None, keyfile: str | None) -> ssl.SSLContext | None:
    """The context of a server: TLS 1.2 or later. None if there is no certificate.

    ``certfile`` holds the certificate and its chain, and the key unless ``keyfile`` is given.
    Raises CertificateError.
    """
    if certfile is None:
        if keyfile is not None:
            raise CertificateError("--ssl-keyfile needs --ssl-certfile")
        return None
    for flag, path in (("--ssl-certfile", certfile), ("--ssl-keyfile", keyfile)):
        if path is not None:
            _check_readable(flag, path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certfile, keyfile, password=_refuse_password)
    except ssl.SSLError as error:
        raise CertificateError(_reason(error, certfile, keyfile)) from None
    return context


def _check_readable(flag: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise CertificateError(f"{flag}: cannot read {path}: {error.strerror}") from None


def _refuse_password() -> str:
    raise CertificateError("--ssl-keyfile: the key has a password; remove it with openssl pkey")


def _reason(error: ssl.SSLError, certfile: str, keyfile: str | None) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"--ssl-keyfile: {keyfile or certfile} is not the key of {certfile}"
    return f"--ssl-certfile: no certificate and key in PEM form in {certfile}" + (
        f" and {keyfile}" if keyfile else ""
    )
