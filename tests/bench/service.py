"""What the daemon makes of many jobs: submits, a long queue, a store full of ended ones.

    python -m tests.bench.service [--jobs N] [--queued N] [--crowd N] [--ended N] [--rows N]
        [--smoke] [--only PART...]

With the fake worker (SNUG_FAKE_WORKER) and submit_load beside it. Submits: so many through 1, 8 and
64 connections, each durable before its answer. Queue: CPU of the daemon while so many wait behind a
job that runs, and while nothing happens; latency of `get` meanwhile. Ended: a job's rows put into
the store by hand again and again, as if it had been many, then the time from the start to the first
answer, resident memory, latency of lists.
Losses: a machine's workers and daemon are killed with a long queue behind them; the time from the
start until the dead attempts are closed. Large: a job of a few rows behind those of very many.
Crowd: latency of `get` while many watch the job that runs, others are connected and say nothing,
and 64 connections submit.
Nothing here passes or fails, but that `snug doctor` finds nothing wrong with a store that was
filled with a few.
"""

import argparse
import asyncio
import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import pathlib
import signal
import socket
import sqlite3
import statistics
import subprocess
import time
import uuid

import grpc
import grpc.aio

from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import FAKE, ONE_AT_A_TIME, FakeDaemon

PARTS = ["submits", "queue", "losses", "large", "crowd", "ended"]
ENDLESS = "steps=10000000 step_ms=1000"
STREAMS_OF_A_CONNECTION = 50
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
ID_TAIL = 6  # Digits, at the end of the ids that the daemon gives.
EXAMINED = 1000  # Of more it takes minutes: every output is read.


def submit(daemon, connections, jobs):
    """submit_load's figures."""
    program = pathlib.Path(FAKE).parent / "submit_load"
    words = [program, f"unix:{daemon.socket}", connections, jobs]
    words += [daemon.jobs / "model", daemon.jobs / "train.jsonl"]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def cpu_seconds(daemon):
    """That the daemon's process has used so far."""
    stat = pathlib.Path(f"/proc/{daemon.process.pid}/stat").read_text(encoding="ascii")
    fields = stat.rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def resident_mib(daemon):
    """Resident memory of the daemon's process."""
    status = pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line) / 1024


def latency_ms(act, repeats=9):
    """The median over repeats; a snug process is started each time."""
    took = []
    for _ in range(repeats):
        begin = time.monotonic()
        act()
        took.append((time.monotonic() - begin) * 1e3)
    return statistics.median(took)


def busy_daemon():
    """A daemon whose one device is taken: nobody is squeezed for those that wait."""
    daemon = FakeDaemon(settings=ONE_AT_A_TIME)
    daemon.wait_state(daemon.submit_script(ENDLESS), "RUNNING")
    return daemon


def measure_submits(jobs):
    for connections in (1, 8, 64):
        daemon = busy_daemon()
        try:
            part = jobs if connections == 64 else max(1, jobs // 10)
            used = cpu_seconds(daemon)
            figures = submit(daemon, connections, part)
            print(f"submits, {connections} connections:", figures, end=" ")
            each = (cpu_seconds(daemon) - used) * 1e3 / part
            print(f"{each:.3f} ms of the daemon's CPU each, with what it prepares meanwhile")
        finally:
            daemon.close()


def all_queued(daemon, count):
    """Whether so many jobs wait; none is being prepared any more."""
    listed = daemon.json("list", "--limit", 1, "--state", "PREPARING")["jobs"]
    return not listed and count


def measure_queue(count):
    daemon = busy_daemon()
    try:
        submit(daemon, 8, count)
        begin, used = time.monotonic(), cpu_seconds(daemon)
        wait_for(lambda: all_queued(daemon, count), "the jobs to be prepared", 1200)
        took = time.monotonic() - begin
        print(f"queue of {count}: prepared in {took:.1f} s, {cpu_seconds(daemon) - used:.1f} s CPU")
        time.sleep(2)
        used = cpu_seconds(daemon)
        time.sleep(10)
        print(f"idle: {(cpu_seconds(daemon) - used) * 10:.2f} % of a core,", end=" ")
        print(f"{resident_mib(daemon):.0f} MiB resident")
        last = daemon.json("list", "--limit", 1)["jobs"][0]["id"]
        print(f"get of the last: {latency_ms(lambda: daemon.run('get', last)):.1f} ms")
        used = cpu_seconds(daemon)
        for _ in range(10):
            last = daemon.json("list", "--limit", 1)["jobs"][0]["id"]
            daemon.run("cancel", last)
        print(f"ten cancels and lists: {(cpu_seconds(daemon) - used) * 100:.1f} ms of CPU each")
        daemon.kill()
        begin = time.monotonic()
        daemon.start()
        print(f"restart: answers after {time.monotonic() - begin:.2f} s")
    finally:
        daemon.close()


def fill(database, count):
    """Copies of the one ended job with all its rows: ids, requests and places in the queue are
    their own, what they have on the disk is the first one's."""
    job, arrival = database.execute("SELECT id, arrival FROM jobs").fetchone()
    stem, tail = job[:-ID_TAIL], int(job[-ID_TAIL:], 16)
    database.create_function(
        "name", 1, lambda number: f"{stem}{(tail + number * 7919) % 16**ID_TAIL:0{ID_TAIL}x}"
    )
    database.create_function(
        "renamed", 2, lambda view, name: view.replace(job.encode(), name.encode())
    )
    database.create_function("uuid", 0, lambda: str(uuid.uuid4()))
    for setting in ("journal_mode=OFF", "synchronous=OFF", "cache_size=-1000000"):
        database.execute(f"PRAGMA {setting}")
    database.execute("CREATE TEMP TABLE copies(number INTEGER PRIMARY KEY, job TEXT UNIQUE)")
    database.execute(
        "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?) "
        "INSERT INTO copies SELECT n, name(n) FROM numbers",
        [count],
    )
    own = {
        "id": "copies.job",
        "arrival": f"{arrival} + number",
        "view": "renamed(view, job)",
        "request_id": "uuid()",
    }
    copy_rows(database, "jobs", own, "number")
    for table in ("labels", "attempts", "checkpoints", "artifacts"):
        copy_rows(database, table, {"job": "copies.job"}, "copies.job")
    (last,) = database.execute("SELECT max(seq) FROM events").fetchone()
    seq = f"{last} + (number - 1) * (SELECT count(*) FROM first_events) + first.rowid"
    copy_rows(database, "events", {"job": "copies.job", "seq": seq}, "number")
    database.commit()


def copy_rows(database, table, own, order):
    """The first job's rows of a table, once for each copy. `own`: the columns that differ."""
    database.execute(f"CREATE TEMP TABLE first_{table} AS SELECT * FROM {table}")
    if not database.execute(f"SELECT 1 FROM first_{table}").fetchone():
        raise ValueError(f"the first job has no {table}")
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    values = ", ".join(own.get(column, f"first.{column}") for column in columns)
    database.execute(
        f"INSERT INTO {table} SELECT {values} FROM copies CROSS JOIN first_{table} AS first "
        f"ORDER BY {order}"
    )


def fill_store(daemon, count):
    """Of a daemon that has ended. The start that is measured is to find the disk at rest."""
    file = daemon.state / "snug.db"
    with contextlib.closing(sqlite3.connect(file)) as database:
        fill(database, count)
    with open(file, "rb") as filled:
        os.fsync(filled.fileno())


def measure_ended(count, jobs):
    daemon = FakeDaemon(settings=ONE_AT_A_TIME)
    try:
        changes = ["display_name=ended", "training.max_steps=10", "training.save_steps=5"]
        changes += ["labels.team=red", "labels.run=first"]
        name = daemon.submit(daemon.job_file(), *changes)
        daemon.wait_state(name, "SUCCEEDED")
        daemon.kill(15)
        fill_store(daemon, count)
        begin = time.monotonic()
        daemon.start()
        print(f"{count} ended: answers after {time.monotonic() - begin:.2f} s,", end=" ")
        print(f"{resident_mib(daemon):.0f} MiB resident")
        red = ("--label", "team=red")
        pages = {
            "list --all --limit 50": ("list", "--all", "--limit", 50),
            "list --state FAILED": ("list", "--state", "FAILED"),
            "list --all --label --limit 50": ("list", "--all", *red, "--limit", 50),
            "get": ("get", name),
        }
        for what, words in pages.items():
            print(f"{what}: {latency_ms(lambda words=words: daemon.run(*words)):.1f} ms")
        if count <= EXAMINED:
            daemon.run("doctor")
        daemon.wait_state(daemon.submit_script(ENDLESS), "RUNNING")
        print(f"submits, 64 connections, {count} ended:", submit(daemon, 64, jobs))
    finally:
        daemon.close()


def measure_losses(count):
    """Of eight workers, all killed with their daemon, while so many jobs wait."""
    daemon = FakeDaemon(settings="max_jobs_per_device: 8\n")
    try:
        names = [daemon.submit_script(ENDLESS) for _ in range(8)]
        for name in names:
            daemon.wait_state(name, "RUNNING")
        submit(daemon, 8, count)
        wait_for(lambda: all_queued(daemon, count), "the jobs to be prepared", 1200)
        daemon.kill()
        for pid in children_of(daemon.state):
            os.kill(pid, signal.SIGKILL)
        begin = time.monotonic()
        daemon.start()
        print(f"{count} queued, eight workers lost: answers after", end=" ")
        print(f"{time.monotonic() - begin:.2f} s,", end=" ")
        wait_for(lambda: all(is_closed(daemon, name) for name in names), "the attempts' ends", 120)
        print(f"has closed their attempts after {time.monotonic() - begin:.2f} s")
    finally:
        daemon.close()


def children_of(state):
    """Processes that work in the state folder: shims and workers."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(state / "jobs").encode() in words:
            found.append(int(entry.name))
    return found


def is_closed(daemon, name):
    """Whether the job's first attempt is over, by the daemon's word."""
    job = daemon.json("get", name)
    return job["epoch"] > 1 or job["state"] != "RUNNING"


def wait_done(daemon, name):
    """Until the job has succeeded, however long others take."""
    wait_for(lambda: daemon.job(name)["state"] == "SUCCEEDED", f"{name} to be done", 600)


def measure_large(rows):
    """Four jobs of very many rows, then one of a few."""
    daemon = FakeDaemon()
    try:
        tokens = list(range(64))  # All that the model has.
        line = json.dumps({"input_ids": tokens, "labels": tokens}) + "\n"
        for number in range(4):
            (daemon.jobs / f"large{number}.jsonl").write_text(line * (rows + number))
            daemon.submit_script("steps=1", f"dataset={daemon.jobs}/large{number}.jsonl")
        begin = time.monotonic()
        wait_done(daemon, daemon.submit_script("steps=1"))
        print(f"a small job behind four of {rows} rows: done after", end=" ")
        print(f"{time.monotonic() - begin:.1f} s", end="; ")
        begin = time.monotonic()
        wait_done(daemon, daemon.submit_script("steps=1", "training.seed=9"))
        print(f"the next one after {time.monotonic() - begin:.1f} s")
    finally:
        daemon.close()


def about(name):
    """The bytes of a request whose first field is the job's name."""
    return b"\n" + bytes([len(name)]) + name.encode()


def crowd(path, name, count, all_there):
    """Watches the job so many times, connects as often without a word; until it is ended."""

    left = set(range(count))  # Those that have heard nothing yet.

    async def watch(channel, number):
        async for _ in channel.unary_stream("/snug.v1.FineTuning/WatchJob")(about(name)):
            left.discard(number)
            if not left:
                all_there.set()

    async def watch_all():
        channels = [
            grpc.aio.insecure_channel(f"unix:{path}", (("grpc.use_local_subchannel_pool", 1),))
            for _ in range(max(1, count // STREAMS_OF_A_CONNECTION))
        ]
        await asyncio.gather(*(watch(channels[i % len(channels)], i) for i in range(count)))

    silent = [socket.socket(socket.AF_UNIX) for _ in range(count)]
    for one in silent:
        one.connect(str(path))
    asyncio.run(watch_all())


def latency_in_a_crowd(count, jobs):
    """Milliseconds, in their order, that each call of GetJob takes while 64 connections submit so
    many jobs, beside so many watchers and as many silent connections; and submit_load's figures."""
    daemon = FakeDaemon(settings=ONE_AT_A_TIME)
    name = daemon.submit_script(ENDLESS)
    daemon.wait_state(name, "RUNNING")
    context = multiprocessing.get_context("spawn")
    all_there = context.Event()
    others = context.Process(target=crowd, args=(daemon.socket, name, count, all_there))
    others.start()
    try:
        if not all_there.wait(120):
            raise TimeoutError(f"{count} watchers and as many silent connections are not all there")
        took, pool = [], concurrent.futures.ThreadPoolExecutor(1)
        with grpc.insecure_channel(f"unix:{daemon.socket}") as channel, pool:
            get = channel.unary_unary("/snug.v1.FineTuning/GetJob")
            submits = pool.submit(submit, daemon, 64, jobs)
            while not submits.done():
                begin = time.monotonic()
                get(about(name), timeout=60)
                took.append((time.monotonic() - begin) * 1e3)
                time.sleep(0.005)
        return sorted(took), submits.result()
    finally:
        others.terminate()
        daemon.close()


def share(took, part):
    """That so great a part of these takes no longer than."""
    return took[int(len(took) * part)]


def measure_crowd(count, jobs):
    took, submits = latency_in_a_crowd(count, jobs)
    print(f"get beside {count} watchers, {count} silent connections, 64 that submit:", end=" ")
    print(f"p50 {share(took, 0.5):.1f} ms, p99 {share(took, 0.99):.1f} ms")
    print("their submits:", submits)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=30_000)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--ended", type=int, default=1_000_000)
    parser.add_argument("--crowd", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--smoke", action="store_true", help="a few of each")
    options = parser.parse_args()
    few = 20 if options.smoke else None
    jobs = few or options.jobs
    parts = {
        "submits": lambda: measure_submits(jobs),
        "queue": lambda: measure_queue(few or options.queued),
        "losses": lambda: measure_losses(few or options.queued),
        "large": lambda: measure_large(few or options.rows),
        "crowd": lambda: measure_crowd(few or options.crowd, jobs),
        "ended": lambda: measure_ended(few or options.ended, jobs),
    }
    for part in options.only:
        parts[part]()


if __name__ == "__main__":
    main()
