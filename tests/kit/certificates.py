"""Certificates and authorities for tests, made with openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

_CURVE: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def openssl(folder: Path, *arguments: str) -> None:
    """Run openssl in a folder."""
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make_ca(folder: Path, name: str) -> None:
    """Create a certificate authority."""
    files = ("-keyout", f"{name}.key", "-out", f"{name}.pem")
    usage = ("-addext", "keyUsage=critical,keyCertSign")
    openssl(folder, "req", "-x509", *_CURVE, *files, "-subj", f"/CN={name}", "-days", "2", *usage)


def make_certificate(folder: Path, name: str, *, ca: str, days: int = 2, address: str = "127.0.0.1") -> None:
    """Create a certificate for this machine or another host."""
    openssl(folder, "req", *_CURVE, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    extensions = folder / "extensions"
    extensions.write_text(f"subjectAltName=IP:{address}\nauthorityKeyIdentifier=keyid\n")
    signing = ("-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial", "-extfile", str(extensions))
    files = ("-in", f"{name}.csr", "-out", f"{name}.pem")
    openssl(folder, "x509", "-req", *files, *signing, "-days", str(days))
