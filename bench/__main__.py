"""``python -m bench``: measures Switchyard and its peers, prints a table, writes ``bench/results/latest.json``."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from bench import install, measure, report
from bench.plan import CONTESTANTS, DEFAULT_PEERS, OURS, QUICK_PEERS, QUICK_WORKLOADS, WORKLOADS, Contestant
from bench.servers import Servers
from orchestrator.services import ServicesError


def say(text: str) -> None:
    """Progress goes to stderr; stdout is the table."""
    print(text, file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(prog="python -m bench", description="Switchyard against its peers, on this machine.")
    p.add_argument("--workloads", default="", help=f"comma-separated: {', '.join(WORKLOADS)} (default: all)")
    p.add_argument("--peers", default="", help=f"comma-separated, 'none' or 'all': {', '.join(_peer_names())} "
                   f"(default: {', '.join(DEFAULT_PEERS)})")  # fmt: skip
    p.add_argument("--rounds", type=int, default=0, help="measurements of each, in turns (default 3)")
    p.add_argument("--workers", type=int, default=2, help="worker processes of each (default 2)")
    p.add_argument("--scale", type=float, default=1.0, help="multiplies the numbers of runs (not the shards)")
    p.add_argument("--quick", action="store_true", help="one round with small counts, under three minutes")
    p.add_argument("--data", type=Path, help="folder for the servers' data (default: the temporary folder)")
    p.add_argument("--setup", action="store_true", help="only install the peers")
    p.add_argument("--docs", action="store_true", help="write the tables into docs/benchmarks.md")
    p.add_argument("--json", action="store_true", help="print the JSON instead of the table")
    return p


def _peer_names() -> list[str]:
    return [name for name in CONTESTANTS if name not in OURS]


def main() -> int:
    """Exit code 0: every one of Switchyard's own measurements finished."""
    args = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    quick_only = list(QUICK_WORKLOADS) if args.quick else list(WORKLOADS)
    workloads = [WORKLOADS[name] for name in _chosen(args.workloads, list(WORKLOADS), quick_only)]
    peers = _chosen(args.peers, _peer_names(), list(QUICK_PEERS if args.quick else DEFAULT_PEERS))
    contestants = [CONTESTANTS[name] for name in OURS] + _installed([CONTESTANTS[name] for name in peers])
    if args.setup:
        return 0
    groups = list(measure.tasks(contestants, workloads, args.quick, args.scale))
    for _, part in groups:
        for task in part:
            task.arguments.extend(["--workers", str(args.workers)])
    rounds = args.rounds or (1 if args.quick else 3)
    begin = time.monotonic()
    try:
        with Servers(args.data) as servers:
            about = _about(args, rounds, servers)
            found = measure.run_rounds(groups, rounds, servers.environment, say)
    except ServicesError as error:
        sys.exit(f"error: {error}")
    about["took_s"] = round(time.monotonic() - begin)
    return _finish(args, found, about)


def _chosen(given: str, known: list[str], default: list[str]) -> list[str]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    if names in (["all"], ["none"]):
        return known if names == ["all"] else []
    for name in names:
        if name not in known:
            sys.exit(f"error: {name!r} is none of {', '.join(known)}")
    return names or default


def _installed(peers: list[Contestant]) -> list[Contestant]:
    """Those that are there or can be installed; the others are named."""
    ready = []
    for peer in peers:
        try:
            install.prepare(peer, say)
            ready.append(peer)
        except install.NotInstalled as problem:
            say(f"{peer.title} is left out: {problem}")
    return ready


def _about(args: argparse.Namespace, rounds: int, servers: Servers) -> dict[str, Any]:
    return {
        "date": report.now(),
        "commit": report.commit(),
        "rounds": rounds,
        "workers": args.workers,
        "quick": args.quick or args.scale < 1,
        "machine": report.machine(servers.facts()),
    }


def _finish(args: argparse.Namespace, found: list[dict[str, Any]], about: dict[str, Any]) -> int:
    summary = report.summarise(found)
    report.write(found, summary, about)
    text = report.markdown(summary, about)
    print(json.dumps({**about, "summary": summary}, indent=2) if args.json else text)
    if args.docs:
        report.write_docs(text)
    say(f"{about['took_s']} s; all figures are in {report.LATEST.relative_to(report.HERE.parent)}")
    lost = [row for row in found if row["contestant"] in OURS and not row.get("ok")]
    for row in lost:
        say(f"{row['workload']} of Switchyard did not finish: {row.get('notes')}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
