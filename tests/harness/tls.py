"""TLS in front of a server that has none: what a client sees is TLS, what the server sees is not.

PostgreSQL's clients first ask in the clear whether TLS is spoken (SSLRequest); the proxy says yes.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import subprocess
import threading
from pathlib import Path


def make_certificate(folder: Path) -> Path:
    """A self-made certificate for 127.0.0.1 with its key, in one file; also the authority that clients trust."""
    path, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(path),
        ],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return path


class TlsProxy:
    """Listens on a port of its own and passes everything on to ``target``. ``handshakes`` counts connections."""

    def __init__(self, target: tuple[str, int], certificate: Path, *, postgres: bool = False) -> None:
        self.target = target
        self.handshakes = 0
        self._postgres = postgres
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, certificate.with_name("key.pem"))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Takes no more connections; those that are open end with their clients."""
        # A close alone does not wake the thread that accepts.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(plain,), daemon=True).start()

    def _connect(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError), plain:
            plain.settimeout(30)
            if self._postgres:
                asked = plain.recv(8, socket.MSG_WAITALL)
                if asked[4:] != bytes.fromhex("04d2162f"):
                    return  # somebody who does not ask for TLS gets nothing
                plain.sendall(b"S")
            with self._context.wrap_socket(plain, server_side=True) as client:
                self.handshakes += 1
                with socket.create_connection(self.target, timeout=30) as server:
                    _pump(client, server)


def _pump(client: ssl.SSLSocket, server: socket.socket) -> None:
    """One thread for both ways: an SSLSocket is not for two."""
    client.settimeout(0.0)
    server.settimeout(0.0)
    to_server, to_client = b"", b""
    while True:
        _wait(client, server, bool(to_server), bool(to_client))
        if not to_server:
            to_server = _receive(client)
        if not to_client:
            to_client = _receive(server)
        if to_server is None or to_client is None:
            return
        to_server = _send(server, to_server)
        to_client = _send(client, to_client)


def _wait(client: ssl.SSLSocket, server: socket.socket, for_server: bool, for_client: bool) -> None:
    if client.pending():
        return
    writing = [s for s, wanted in ((server, for_server), (client, for_client)) if wanted]
    select.select([client, server], writing, [], 1.0)


def _receive(sock: socket.socket) -> bytes | None:
    """What has come; empty when nothing has, None at the end."""
    try:
        return sock.recv(65536) or None
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return b""
    except OSError:
        return None


def _send(sock: socket.socket, data: bytes) -> bytes:
    """What is left to be sent."""
    if not data:
        return b""
    try:
        return data[sock.send(data) :]
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return data
