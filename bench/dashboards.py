"""``python -m bench.dashboards``: what open dashboards cost the engine, in paired rounds on one machine.

Each round executes the same no-op runs twice, once alone and once while N dashboards poll as browsers do (every three
seconds, with the tag of what they show), in random order. Answered is how much longer it takes, with the 95 % interval
of the median by bootstrap. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

TICK = 3.0
PATHS = ("/", "/runs/", "/dead-letters/", "/queues/", "/overdue/", "/runs/?state=running")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--dashboards", type=int, default=200)
    asked.add_argument("--rounds", type=int, default=9, help="pairs")
    asked.add_argument("--runs", type=int, default=2000, help="runs of five no-op steps in each half of a pair")
    asked.add_argument("--processes", type=int, default=2)
    asked.add_argument("--json", action="store_true")
    options = asked.parse_args()
    os.environ.setdefault("ORCHESTRATOR_WORKFLOWS", "bench.workflows")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orchestrator.settings")
    import django

    django.setup()
    with engine(options.processes) as base:
        answer = measure(options, base)
    print(json.dumps(answer) if options.json else words(answer))
    sys.exit(0 if answer["slower"]["high"] <= 0.10 else 1)


@contextmanager
def engine(processes: int) -> Iterator[str]:
    """Web server, dispatcher and workers on a database of their own; the web address."""
    from django.conf import settings
    from django.core.management import call_command

    from orchestrator.testing.disposable import require_disposable

    require_disposable("the benchmark of dashboards")
    assert not settings.DATABASE_IS_PRIVATE
    call_command("migrate", verbosity=0)
    call_command("publish", stdout=io.StringIO())
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    manage = [sys.executable, "manage.py"]
    web = [sys.executable, "-m", "gunicorn", "orchestrator.wsgi", "--bind", f"127.0.0.1:{port}", "--log-level", "error"]
    started = [
        subprocess.Popen([*web, "--worker-class", "gthread", "--workers", "1", "--threads", "8"]),
        subprocess.Popen([*manage, "dispatcher"], stderr=subprocess.DEVNULL),
        subprocess.Popen([*manage, "worker", "default", "--processes", str(processes)], stderr=subprocess.DEVNULL),
    ]
    try:
        base = f"http://127.0.0.1:{port}"
        _until(lambda: _status(f"{base}/readyz") == 200, 60)
        yield base
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)


def _until(done: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise SystemExit("it did not come to that in time")
        time.sleep(0.02)


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except (urllib.error.URLError, OSError):
        return 0


class Dashboards:
    """Threads, each a few open windows that poll at their own moment of the tick."""

    def __init__(self, base: str, cookies: list[str]) -> None:
        self.base, self.cookies, self.stop = base, cookies, threading.Event()
        self.polls = self.same = self.failed = 0
        self.lock = threading.Lock()
        share = [list(range(len(cookies)))[n::20] for n in range(min(20, len(cookies)))]
        self.threads = [threading.Thread(target=self._poll, args=(windows,), daemon=True) for windows in share]

    def __enter__(self) -> Dashboards:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(30)

    def _poll(self, windows: list[int]) -> None:
        tags: dict[int, str] = {}
        server = Server(self.base)
        while not self.stop.is_set():
            for window in windows:
                headers = {"Cookie": self.cookies[window], "HX-Request": "true"}
                if tags.get(window):
                    headers["HX-PTag"] = tags[window]
                status, tags[window] = server.get(PATHS[window % len(PATHS)], headers)
                with self.lock:
                    self.polls += 1
                    self.same += status == 304
                    self.failed += status not in (200, 304)
                if self.stop.wait(TICK / len(windows)):
                    return


class Server:
    """One open connection. Browsers run on machines of their own, so what stands for them here is to cost little."""

    def __init__(self, base: str) -> None:
        host, _, port = base.removeprefix("http://").partition(":")
        self._address = (host, int(port))
        self._socket: socket.socket | None = None

    def get(self, path: str, headers: dict[str, str]) -> tuple[int, str]:
        """Status (0 without an answer) and tag of a region; its body is read and thrown away."""
        lines = [f"GET {path} HTTP/1.1", f"Host: {self._address[0]}", *(f"{k}: {v}" for k, v in headers.items())]
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._address, timeout=30)
            self._socket.sendall("\r\n".join([*lines, "", ""]).encode())
            head, _, body = self._read_head(self._socket)
            fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in head.split("\r\n"))}
            status, length = int(head.split(" ", 2)[1]), int(fields.get("content-length", "0"))
            left = length - len(body)
            while left > 0:
                left -= len(self._socket.recv(min(left, 1 << 18))) or left
            if fields.get("connection") == "close":
                self.close()
            return status, fields.get("hx-ptag", "")
        except (OSError, ValueError, IndexError):
            self.close()
            return 0, ""

    @staticmethod
    def _read_head(server: socket.socket) -> tuple[str, bytes, bytes]:
        got = b""
        while b"\r\n\r\n" not in got:
            part = server.recv(1 << 16)
            if not part:
                raise OSError("closed")
            got += part
        head, sep, body = got.partition(b"\r\n\r\n")
        return head.decode("latin-1"), sep, body

    def close(self) -> None:
        """The next request opens it again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def measure(options: Any, base: str) -> dict[str, Any]:
    """The pairs, and what they say."""
    from django.contrib.auth.models import User
    from django.test import Client

    from orchestrator.engine.submit import submit_many
    from orchestrator.models import Run

    user, _ = User.objects.get_or_create(username="bench", is_superuser=True)
    cookies = []
    for _ in range(options.dashboards):  # each a browser of its own
        client = Client()
        client.force_login(user)
        client.get("/queues/")  # which gives it a token against forged requests
        cookies.append("; ".join(f"{name}={held.value}" for name, held in client.cookies.items()))

    def work(count: int) -> float:
        begun = time.monotonic()
        ids = submit_many([{"workflow": "bench-chain", "subject_id": f"s{n}"} for n in range(count)])
        _until(lambda: not Run.objects.filter(state="running", pk__gte=ids[0]).exists(), 600)
        return time.monotonic() - begun

    work(max(options.runs // 4, 50))  # to warm up
    pairs, polls, same, failed = [], 0, 0, 0
    for _ in range(options.rounds):
        took: dict[bool, float] = {}
        for watched in random.sample([False, True], 2):
            if not watched:
                took[watched] = work(options.runs)
                continue
            with Dashboards(base, cookies) as open_ones:
                time.sleep(TICK)  # all of them are open
                took[watched] = work(options.runs)
            polls, same, failed = polls + open_ones.polls, same + open_ones.same, failed + open_ones.failed
        pairs.append((took[False], took[True]))
    slower = [watched / alone - 1 for alone, watched in pairs]
    low, high = interval(slower)
    return {
        "dashboards": options.dashboards, "runs": options.runs, "rounds": options.rounds, "pairs": pairs,
        "slower": {"median": median(slower), "low": low, "high": high}, "polls": polls, "not_modified": same,
        "failed": failed,
    }  # fmt: skip


def interval(values: list[float], times: int = 10_000) -> tuple[float, float]:
    """The 95 % interval of the median by bootstrap."""
    dice = random.Random(1)
    medians = sorted(median(dice.choices(values, k=len(values))) for _ in range(times))
    return medians[int(0.025 * times)], medians[int(0.975 * times) - 1]


def words(answer: dict[str, Any]) -> str:
    """The answer for people."""
    found = answer["slower"]
    pairs = "\n".join(f"  alone {alone:6.2f} s   watched {watched:6.2f} s" for alone, watched in answer["pairs"])
    return (
        f"{answer['dashboards']} open dashboards, {answer['rounds']} pairs of {answer['runs']:,} runs\n{pairs}\n"
        f"slower by {found['median']:+.1%} (95 %: {found['low']:+.1%} to {found['high']:+.1%}); "
        f"{answer['polls']:,} polls, {answer['not_modified']:,} not modified, {answer['failed']:,} failed"
    )


if __name__ == "__main__":
    main()
