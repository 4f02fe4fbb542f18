"""The failpoints of tests/fault/crash.py: which process has each, what may be done there, and what
the harness must do to come there."""

POINTS = {
    "store.commit": ("daemon", ("kill", "error", "delay:50")),
    "store.committed": ("daemon", ("kill", "delay:50")),
    "store.sync_folder": ("daemon", ("kill",)),
    "witness.write": ("daemon", ("kill", "error")),
    "witness.written": ("daemon", ("kill",)),
    "witness.sync": ("daemon", ("kill",)),
    "spawn.begin": ("daemon", ("kill", "error")),
    "spawn.done": ("daemon", ("kill",)),
    "inspect.send": ("daemon", ("kill", "error")),
    "inspect.send_files": ("daemon", ("kill", "error")),
    "launch.folders": ("daemon", ("kill",)),
    "launch.locked": ("daemon", ("kill",)),
    "file.rename": ("daemon", ("kill", "error")),
    "file.renamed": ("daemon", ("kill",)),
    "link.read": ("daemon", ("kill", "error")),
    "link.received": ("daemon", ("kill",)),
    "link.send": ("daemon", ("kill", "error")),
    "trash.rename": ("daemon", ("kill", "error")),
    "trash.renamed": ("daemon", ("kill",)),
    "copy.sync": ("daemon", ("kill", "error")),
    "backup.copied": ("daemon", ("kill",)),
    "restore.copied": ("restore", ("kill",)),
    "restore.rename": ("restore", ("kill", "error")),
    "restore.aside": ("restore", ("kill",)),
    "restore.wal_aside": ("restore", ("kill",)),
    "restore.renamed": ("restore", ("kill",)),
    "audit.rename": ("daemon", ("kill", "error")),
    "audit.renamed": ("daemon", ("kill",)),
    "upload.rename": ("daemon", ("kill", "error")),
    "upload.renamed": ("daemon", ("kill",)),
    "upload.sync": ("daemon", ("kill", "error")),
    "upload.published": ("daemon", ("kill",)),
    "upload.gone": ("daemon", ("kill",)),
    "removal.rename": ("daemon", ("kill", "error")),
    "removal.renamed": ("daemon", ("kill",)),
    "prepare.rename": ("daemon", ("kill", "error")),
    "prepare.renamed": ("daemon", ("kill",)),
    "webhook.call": ("daemon", ("kill",)),
    "webhook.called": ("daemon", ("kill",)),
    "worker.spawn": ("shim", ("kill",)),
    "worker.spawned": ("shim", ("kill",)),
    "exit.written": ("shim", ("kill",)),
    "exit.synced": ("shim", ("kill",)),
    "exit.renamed": ("shim", ("kill",)),
    "exit.durable": ("shim", ("kill",)),
    "checkpoint.weights": ("worker", ("kill",)),
    "checkpoint.manifest": ("worker", ("kill",)),
    "checkpoint.renamed": ("worker", ("kill",)),
    "result.rename": ("worker", ("kill",)),
    "result.renamed": ("worker", ("kill",)),
}
# What these cycles do not come to, and why.
UNREACHED = {
    "launch.stale": "a folder of an epoch that the store has not given out: a restored store's",
    "trash.put_back": "a deletion that the store refuses, after its folder has gone",
    "spawn.ask": "only with a launcher of its own (server/launcher_test.py)",
    "log.rename": "a worker that prints 32 MiB (server/hardening_test.py)",
    "log.renamed": "a worker that prints 32 MiB (server/hardening_test.py)",
}
# Reached hundreds of times in a life; those that are reached a few times; all others once.
OFTEN = ("store.commit", "store.committed", "witness.write", "witness.written", "link.received")
SOME = ("spawn", "launch", "file", "link", "trash", "checkpoint")
# Reached a second after a start, or after a second's work: chosen less often, and waited for.
SLOW = ("removal", "prepare", "webhook")
SLOW_S = 4.0


def family(name):
    """The part of a point's name before the dot."""
    return name.split(".", maxsplit=1)[0]


def choose(random):
    """A point with what is done there as (name, setting), or nothing: a random moment."""
    if random.random() < 0.3:
        return "", ""
    weights = [0.25 if family(name) in SLOW else 1.0 for name in POINTS]
    name = random.choices(list(POINTS), weights)[0]
    most = 40 if name in OFTEN else 3 if family(name) in SOME else 1
    if name == "restore.rename":
        most = 3
    return name, f"{name}={random.choice(POINTS[name][1])}@{random.randint(1, most)}"
