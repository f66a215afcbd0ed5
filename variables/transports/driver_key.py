"""The key by which a driver and the tasks of its queries know each other.

A driver that serves a transport to executors has a certificate of its own, which both sides present and require. So who
has no key gets no connection, and nobody reads what is sent. The key reaches tasks inside the functions that use shared
variables, and processes on the driver's machine in a file that only the user can read. It is in no setting, property,
address or log.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import re
import stat
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from streamstate.errors import TransportError, require_extra

HOST = "streamstate-driver"
"""The name in the certificate, whatever the machine is called."""
_NAME = re.compile(r"[0-9a-f]{16}")
_LIFE = timedelta(days=365)


@dataclass(frozen=True)
class DriverKey:
    """A certificate and its private key, as PEM."""

    certificate: bytes
    private: bytes

    @property
    def name(self) -> str:
        """The fingerprint that identifies the key."""
        return hashlib.sha256(self.certificate).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"<DriverKey {self.name}>"


_learned: dict[str, DriverKey] = {}


@functools.cache
def own_key() -> DriverKey:
    """This driver's key, which lasts as long as its process.

    Raises:
        MissingDependencyError: the extra ``variables`` is not installed.
    """
    require_extra("variables")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks differ
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key = DriverKey(made.public_bytes(pem), private.private_bytes(pem, *plain))
    _write(key)
    learn(key)
    return key


def learn(key: DriverKey | None) -> None:
    """Remember the key of the driver whose task this process runs."""
    if key is not None:
        _learned[key.name] = key


def known_key(name: str) -> DriverKey:
    """Return the key of a name: one that this process has learned, or that a driver on this machine has.

    Raises:
        TransportError: there is none.
    """
    key = _learned.get(name) or (_read(name) if _NAME.fullmatch(name) else None)
    if key is None or key.name != name:
        raise TransportError(
            "This process has no key to the driver that serves the shared variables.\n"
            "Use the variable itself in the operator's function, so that the key comes with it."
        )
    learn(key)
    return key


def learned_key() -> DriverKey | None:
    """Return the key that this process has learned last, to pass it on; None if it has none."""
    return next(reversed(_learned.values()), None)


def _path(name: str) -> Path:
    return Path(tempfile.gettempdir()) / f"streamstate-driver-{os.getuid()}-{name}.pem"


def _write(key: DriverKey) -> None:
    path = _path(key.name)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(file, "wb") as opened:
        opened.write(key.certificate + key.private)
    atexit.register(_remove, path, os.getpid())


def _remove(path: Path, process: int) -> None:
    if os.getpid() == process:  # not a fork of it
        with contextlib.suppress(OSError):
            path.unlink()


def _read(name: str) -> DriverKey | None:
    """Return the key in a driver's file, if it is the user's own and nobody else can read it."""
    try:
        file = os.open(_path(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(file, "rb") as opened:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
            return None
        certificate, mark, private = opened.read().partition(b"-----BEGIN PRIVATE KEY-----")
    return DriverKey(certificate, mark + private)
