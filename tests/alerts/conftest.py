"""What tests of alerts share."""

import shutil
import ssl
from pathlib import Path

import pytest
from tests.alerts.servers import certificate


@pytest.fixture(scope="session")
def self_signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def tls(self_signed: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """The server's side of a certificate that this test trusts."""
    file, context = self_signed
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    return context


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
