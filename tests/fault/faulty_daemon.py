"""snugd over an operating system that fails (tests/fault/faulty_os.cc), and machines that lose
power."""

import contextlib
import os
import random
import shutil
import subprocess
import time

from tests.harness.daemon import WAIT_S, Failed, binary
from tests.harness.fake_daemon import FakeDaemon

LAYER = os.environ["SNUG_FAULTY_OS"]
PAGE = 4096


class FaultyDaemon(FakeDaemon):
    """snugd whose calls fail as `faults` say, from the next start on."""

    def __init__(self):
        super().__init__()
        self.acknowledged = []
        self.hit = self.folder / "hits"

    def suffer(self, **faults):
        """Ends it, and starts it over an operating system with these faults. The code it exits
        with, where it does not get so far as to serve."""
        if self.process.poll() is None:
            self.kill()
        self.hit.write_bytes(b"")
        layer = {"LD_PRELOAD": LAYER, "FAULTY_DIR": self.state, "FAULTY_HITS": self.hit} | faults
        settings = [f"{name}={value}" for name, value in layer.items()]
        self.under = ["env", *settings] if faults else []
        try:
            self.start()
        except RuntimeError:
            return self.process.returncode
        return None

    def run(self, *words, code=0, cwd=None):
        """As a sound daemon's, but that of a daemon that has ended nobody waits for the return."""
        line = [str(binary("snug")), "--server", f"unix:{self.socket}", *map(str, words)]
        with subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd
        ) as client:
            ends = time.monotonic() + 2 * WAIT_S
            while True:
                gone = self.process.poll() is not None
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, err = client.communicate(timeout=0.2)
                    break
                if gone or time.monotonic() > ends:
                    client.kill()
        done = subprocess.CompletedProcess(line, client.returncode, out, err)
        if code is not None and done.returncode != code:
            raise Failed(done)
        return done

    def hits(self):
        """Whether a call has failed since."""
        return self.hit.stat().st_size > 0

    def recover(self):
        """Starts it over a sound operating system; everything acknowledged is there, and once."""
        code = self.suffer()
        if code is not None:
            raise AssertionError(self.log.read_text())
        jobs = self.json("list", "--all", "--limit", 100_000)["jobs"]
        ids = [job["id"] for job in jobs]
        names = [job["display_name"] for job in jobs]
        missing = set(self.acknowledged) - set(ids)
        doubled = {name for name in names if names.count(name) > 1}
        if missing or doubled:
            raise AssertionError(f"lost {missing}, doubled {doubled}")
        found = self.json("doctor").get("findings", [])
        if found:
            raise AssertionError(found)

    def submit_until_refused(self, most):
        """Submits jobs under names of their own; gives what the first refusal said, if any."""
        for _ in range(most):
            name = f"steps=1 n={len(os.listdir(self.folder))}-{random.getrandbits(40):x}"
            try:
                self.acknowledged.append(self.submit_script(name))
            except Failed as failed:
                return failed.done.stderr
        return ""


def files_of(state):
    """Every file below the state folder that snugd itself writes, but for what is of an attempt."""
    found = [*state.iterdir(), *(state / "uploads").rglob("*")]
    return [file for file in found if file.is_file() and file.suffix != ".sock"]


def remember(state, synced):
    """Takes all that is there for synced."""
    for file in files_of(state):
        if file.name != "ballast":
            shutil.copy(file, synced / str(file.stat().st_ino))


def lose_power(state, synced, draw):
    """What snugd has written since it last synced it is there in part."""
    for file in files_of(state):
        if file.name.endswith("-shm"):
            file.unlink()  # Memory of the processes that there were.
        elif file.name != "ballast":
            tear(file, synced, draw)


def tear(file, synced, draw):
    """Of one file. What of it was never synced may be zeros."""
    kept, content = synced / str(file.stat().st_ino), file.read_bytes()
    old = kept.read_bytes() if kept.is_file() else b"\0" * len(content)
    file.write_bytes(torn(old, content, draw))


def torn(old, new, draw):
    """Of a file whose last sync left `old` and whose writes since made it `new`: each page is one
    of both."""
    pages = []
    for at in range(0, max(len(old), len(new)), PAGE):
        first, second = old[at : at + PAGE], new[at : at + PAGE]
        pages.append(second if draw.random() < 0.5 and second else first or second)
    return b"".join(pages)
