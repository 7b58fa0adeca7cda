"""Somebody who takes alerts."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any


class Receiver(http.server.ThreadingHTTPServer):
    """Keeps what is posted; answers 503 while ``down``."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, Any]]] = []
        self.refused, self.down = 0, False
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where to post."""
        return f"http://127.0.0.1:{self.server_address[1]}/hook"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.down:
            self.server.refused += 1
        else:
            self.server.got.append((self.headers["Idempotency-Key"], json.loads(body)))
        self.send_response(503 if self.server.down else 204)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass
