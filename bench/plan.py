"""What is measured: the peers, the workloads, and how much of each."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Workload:
    """One shape of work. ``figure`` is the key of the reported number in a script's JSON line."""

    name: str
    title: str
    figure: str
    unit: str
    more_is_better: bool = True
    flags: tuple[str, ...] = ()


WORKLOADS = {
    w.name: w
    for w in [
        Workload("W1", "chains of 5 steps, all submitted at once", "steps_per_s", "steps/s"),
        Workload("W2", "one run, 1,000 shards and a join that counts them", "steps_per_s", "steps/s"),
        Workload("W2-10k", "the same with 10,000 shards", "steps_per_s", "steps/s", flags=("--shards", "10000")),
        Workload("W3", "probe, three transcodes in parallel, thumbnail, notify", "steps_per_s", "steps/s"),
        Workload("W4", "the same, one run at a time on an idle system: submit to finish", "p50_ms", "ms, p50", False),
        Workload("W5", "one submission of W3 while workers run", "submit_ms", "ms a run", False),
    ]
}


@dataclass(frozen=True)
class Contestant:
    """One row of the tables: a peer's script in one configuration.

    Attributes:
        venv: folder under ``bench/.venvs``; empty: this project's own Python.
        node: run by node instead.
        flags: always given.
        runs: runs a workload where fewer than the script's default keep a slow peer within minutes; 0: left out.
    """

    name: str
    title: str
    script: str
    venv: str = ""
    node: bool = False
    flags: tuple[str, ...] = ()
    runs: dict[str, int] = field(default_factory=dict)
    more_flags: dict[str, tuple[str, ...]] = field(default_factory=dict)


CONTESTANTS = {
    c.name: c
    for c in [
        Contestant("switchyard", "Switchyard", "bench_switchyard.py"),
        Contestant(
            "switchyard-many", "Switchyard, submit_many of 50", "bench_switchyard.py", flags=("--config", "many"),
            runs={"W2": 0, "W2-10k": 0, "W4": 0},
        ),
        Contestant(
            "bullmq", "BullMQ, addBulk of 50", "bench_bullmq.mjs", node=True, flags=("--concurrency", "16"),
            more_flags={"W4": ("--concurrency", "1")},
        ),
        Contestant(
            "bullmq-one", "BullMQ, one call a run", "bench_bullmq.mjs", node=True,
            flags=("--config", "single", "--concurrency", "16"), runs={"W2": 0, "W2-10k": 0, "W4": 0},
        ),
        Contestant("celery", "Celery canvas", "bench_celery.py", venv="celery", runs={"W2-10k": 0, "W5": 500}),
        Contestant(
            "dbos", "DBOS", "bench_dbos.py", venv="dbos",
            runs={"W1": 200, "W2-10k": 0, "W3": 150, "W4": 20, "W5": 500},
            more_flags={"W2": ("--config", "steps")},
        ),
        Contestant(
            "rq", "RQ 2.9 with depends_on", "bench_rq.py", venv="rq",
            runs={"W1": 200, "W2-10k": 0, "W3": 150, "W4": 30, "W5": 200},
        ),
        Contestant(
            "procrastinate", "procrastinate, counter row", "bench_procrastinate.py", venv="procrastinate",
            runs={"W1": 0, "W2-10k": 0, "W3": 0, "W4": 0, "W5": 0},
        ),
    ]
}  # fmt: skip
#: Switchyard first: the others are compared with it.
OURS = ("switchyard", "switchyard-many")
DEFAULT_PEERS = ("bullmq", "bullmq-one", "celery", "dbos")
QUICK_PEERS = ("bullmq", "celery", "dbos")
#: With --quick: one round of so many runs each.
QUICK = {"W1": 200, "W3": 60, "W4": 10, "W5": 100}
QUICK_WORKLOADS = ("W1", "W2", "W3", "W4", "W5")


def arguments(contestant: Contestant, workload: Workload, quick: bool, scale: float = 1.0) -> list[str] | None:
    """Arguments of the script for one measurement; None where the contestant does not take part."""
    runs = contestant.runs.get(workload.name)
    if runs == 0:
        return None
    name = workload.name.split("-")[0]
    given = ["--workload", name, *contestant.flags, *workload.flags, *contestant.more_flags.get(workload.name, ())]
    if quick and name in QUICK:
        runs = min(runs or QUICK[name], QUICK[name])
    if scale != 1.0 and name in DEFAULT_RUNS:
        runs = max(4, int((runs or DEFAULT_RUNS[name]) * scale))
    return [*given, "--runs", str(runs)] if runs else given


#: What the scripts do when not told otherwise.
DEFAULT_RUNS = {"W1": 1000, "W3": 300, "W4": 50, "W5": 1000}
