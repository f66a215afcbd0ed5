"""The server with a certificate of its own: HTTPS for the API and the links, and nothing without trust in it."""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

import streamstate as ss
from streamstate.errors import InvalidArgumentError, ShareError
from streamstate.sharing import serve
from streamstate.state_inspect.store import Store


def certificate(folder: Path) -> tuple[str, str]:
    """The files of a self-signed certificate for 127.0.0.1 and of its key."""
    folder.mkdir()
    files = folder / "cert.pem", folder / "key.pem"
    try:
        _by_cryptography(*files)
    except ImportError:
        _by_openssl(*files)
    return str(files[0]), str(files[1])


def _by_cryptography(certificate: Path, key: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    made, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    uses = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign"), False
    )
    signed = (
        x509.CertificateBuilder(name, name, made.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(made.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=True, encipher_only=False, decipher_only=False, **uses),
            critical=True,
        )
        .sign(made, hashes.SHA256())
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key.write_bytes(made.private_bytes(*form))


def _by_openssl(certificate: Path, key: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("Neither the package cryptography nor openssl is there to make a certificate.")
    made = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(key))
    about = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1")
    uses = ("-addext", "keyUsage=critical,digitalSignature,keyCertSign")
    command = ["openssl", "req", "-x509", *made, "-out", str(certificate), *about, *uses]
    subprocess.run(command, check=True, capture_output=True)


def test_https(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipient that trusts the certificate reads as over HTTP; others are told why not, and HTTP has no answer."""
    files = certificate(tmp_path / "ours")
    with serve(store, port=0, certificate=files) as server:
        assert server.url.startswith("https://127.0.0.1:")
        opened = store["q"].publish("partner").profile(server.url)
        with pytest.raises(ShareError, match=r"cannot be reached.*certificate"):
            ss.open_share(opened, cache=tmp_path / "copy")
        with pytest.raises((URLError, OSError)):
            urlopen(server.url.replace("https://", "http://") + "/shares", timeout=10)
        monkeypatch.setenv("SSL_CERT_FILE", files[0])
        monkeypatch.setattr("urllib.request._opener", None)  # from Python 3.12 on it keeps what it trusts
        theirs = ss.open_share(opened, cache=tmp_path / "copy")
        assert theirs["q"].captured() == store["q"].captured()
        assert theirs["q"].live().table().to_arrow() == store["q"].live().table().to_arrow()


def test_a_key_of_another_certificate(store: Store, tmp_path: Path) -> None:
    """The server does not start."""
    ours, others = certificate(tmp_path / "ours"), certificate(tmp_path / "others")
    with pytest.raises(InvalidArgumentError, match="certificate cannot be used"):
        serve(store, port=0, certificate=(ours[0], others[1]))
