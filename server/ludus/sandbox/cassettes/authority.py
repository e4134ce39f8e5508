"""A certificate authority of this process, with which the egress proxy answers HTTPS requests from a cassette.

Its private key exists in memory only, for as long as the process. A sandbox gets the certificate as a file, which the
environment variables of common programs name. Nothing else trusts it.
"""

from __future__ import annotations

import os
import shutil
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ludus.sandbox.core.model import SandboxSettings
from ludus.sandbox.core.stale import OWNER

PATH_INSIDE: Final = "/.ludus-authority.pem"
"""The path of the certificate in a sandbox."""
VARIABLES: Final = (
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "PIP_CERT",
    "AWS_CA_BUNDLE", "DENO_CERT", "CARGO_HTTP_CAINFO",
)  # fmt: skip
"""Environment variables that name the certificates which a program trusts."""
_VALID: Final = timedelta(days=30)
_BEFORE: Final = timedelta(days=1)
_REMEMBERED: Final = 1000


class Authority:
    """A certificate authority, and the TLS settings of the hosts that it has made certificates for."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Ludus cassettes")])
        usage = x509.KeyUsage(
            digital_signature=False, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip
        self._certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self._contexts: dict[str, ssl.SSLContext] = {}

    @property
    def certificate(self) -> bytes:
        """The authority's certificate, as PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def context(self, host: str) -> ssl.SSLContext:
        """Return the TLS settings of a server with this name or address."""
        context = self._contexts.get(host)
        if context is None:
            if len(self._contexts) >= _REMEMBERED:
                self._contexts.clear()
            context = self._contexts[host] = self._make(host)
        return context

    def _make(self, host: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            name: x509.GeneralName = x509.IPAddress(ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        certificate = (
            self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])]), key.public_key())
            .add_extension(x509.SubjectAlternativeName([name]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pem = certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # The ssl module reads certificates from files only; this one is gone when it has been read.
        with tempfile.NamedTemporaryFile(prefix=f"{OWNER}-") as file:
            file.write(pem)
            file.flush()
            context.load_cert_chain(file.name)
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BEFORE)
            .not_valid_after(now + _VALID)
        )


@cache
def own_authority() -> Authority:
    """Return the authority of this process."""
    return Authority()


class AuthorityFile:
    """The certificate of this process's authority as a file for sandboxes."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=f"{OWNER}-"))
        self.path = self._folder / "authority.pem"
        self.path.write_bytes(own_authority().certificate)
        os.chmod(self.path, 0o644)
        os.chmod(self._folder, 0o755)

    def shown_in(self, settings: SandboxSettings) -> SandboxSettings:
        """Return settings with which a sandbox has the file, and variables that name it; the author's variables win."""
        if any(inside == PATH_INSIDE for _, inside in settings.readonly):
            return settings
        named = tuple((name, PATH_INSIDE) for name in VARIABLES)
        return settings.but(
            readonly=(*settings.readonly, (str(self.path), PATH_INSIDE)), env=(*named, *settings.env)
        )  # fmt: skip

    def remove(self) -> None:
        """Remove the file."""
        shutil.rmtree(self._folder, ignore_errors=True)
