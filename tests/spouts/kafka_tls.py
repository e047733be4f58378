"""Certificates for brokers that speak TLS: an authority of the tests' own, a stranger, and the files that a source names."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

HOST = "127.0.0.1"


class Authority:
    """An authority that signs certificates of brokers and of clients."""

    def __init__(self) -> None:
        self.ca = trustme.CA()
        self.pem = self.ca.cert_pem.bytes().decode()

    def context(self, *, of: str = HOST, asks: bool = False, **dates: Any) -> ssl.SSLContext:
        """Return TLS of a broker, which may ask for a certificate of the client."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(of, **dates).configure_cert(made)
        if asks:
            self.ca.configure_trust(made)
            made.verify_mode = ssl.CERT_REQUIRED
        return made

    def client(self, password: str = "") -> dict[str, str]:
        """Return the options of a client with a certificate; with a password, the key is encrypted."""
        made = self.ca.issue_cert("reader@shop.example")
        key = made.private_key_pem.bytes()
        if password:
            kept = BestAvailableEncryption(password.encode())
            key = load_pem_private_key(key, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, kept)
        chain = "".join(each.bytes().decode() for each in made.cert_chain_pems)
        found = {"ssl.certificate.pem": chain, "ssl.key.pem": key.decode()}
        return found | ({"ssl.key.password": password} if password else {})


def in_files(options: dict[str, str], folder: Path) -> dict[str, str]:
    """Return the options with files in place of texts of PEM."""
    found = dict[str, str]()
    for name, value in options.items():
        if name.endswith(".pem"):
            file = folder / name
            file.write_text(value)
            found[name.replace(".pem", ".location")] = str(file)
        else:
            found[name] = value
    return found


def source(brokers: str, protocol: str, **options: Any) -> str:
    """Return a source; `_` in a name stands for a dot."""
    told = {"bootstrap.servers": brokers, "security.protocol": protocol}
    return json.dumps(told | {name.replace("_", "."): value for name, value in options.items()})
