"""TLS: the context of all doors that have it."""

import ssl
from pathlib import Path

from penstock.model.errors import BadRequest


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a context with a certificate (and those between it and a known root) and its key, or say what is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for path, option in ((certificate, "--tls-cert"), (key, "--tls-key")):
        try:
            path.read_bytes()
        except OSError as error:
            raise BadRequest(f"{option}: {path} cannot be read: {error.strerror}", key=option) from None
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise BadRequest(
            f"--tls-cert {certificate} and --tls-key {key} do not make a certificate with its key: {reason}",
            key="--tls-cert",
        ) from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def _no_password() -> str:
    """Give none instead of asking at the terminal, where nobody may be."""
    return ""
