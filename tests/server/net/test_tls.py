import ssl

import pytest

from server.net.tls import CertificateError, tls_context
from tests.support.source_tree import ROOT

TLS = ROOT / "tests" / "support" / "tls"
CERTIFICATE, KEY = str(TLS / "test-cert.pem"), str(TLS / "test-key.pem")


def test_without_a_certificate_there_is_no_tls():
    assert tls_context(None, None) is None


def test_certificate_and_key():
    context = tls_context(CERTIFICATE, KEY)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_one_file_may_hold_both(tmp_path):
    both = tmp_path / "both.pem"
    both.write_bytes((TLS / "test-cert.pem").read_bytes() + (TLS / "test-key.pem").read_bytes())
    assert tls_context(str(both), None)


@pytest.mark.parametrize(
    ("certificate", "key", "text"),
    [
        (None, KEY, "--ssl-keyfile needs --ssl-certfile"),
        ("/nowhere/c.pem", KEY, "--ssl-certfile: cannot read /nowhere/c.pem: No such file"),
        (CERTIFICATE, "/nowhere/k.pem", "--ssl-keyfile: cannot read /nowhere/k.pem"),
        (CERTIFICATE, str(TLS), f"--ssl-keyfile: cannot read {TLS}: Is a directory"),
        (CERTIFICATE, str(TLS / "other-key.pem"), "other-key.pem is not the key of"),
        (CERTIFICATE, str(TLS / "locked-key.pem"), "the key has a password"),
        (CERTIFICATE, None, "no certificate and key in PEM form"),
        (str(TLS / "README.md"), KEY, "no certificate and key in PEM form"),
    ],
)
def test_what_cannot_be_used_is_one_line(certificate, key, text):
    with pytest.raises(CertificateError) as caught:
        tls_context(certificate, key)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
