"""The Debian package in a clean Debian of its own: installed by apt, a job without systemd, a job
under a systemd that boots there, removed, purged. Needs root and Debian's mirror, mmdebstrap and
systemd-nspawn. SNUG_DEB names a package to be tested; without it cpack makes one.

What it prints at the end is the time from the package to the first step."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from tests.deploy.container_test import stages
from tests.harness import jobs
from tests.harness.binaries import ROOT, binary

BUILD = pathlib.Path(str(binary("snug"))).parent.parent
FIRST_STEP_S = 120  # From `apt-get install` to the first step.
# What apt and dpkg keep of packages that are gone, and caches that they make anew.
LEAVINGS = re.compile(
    r"/(var/(lib/(apt|dpkg|systemd)|cache|log)|etc/(ld\.so\.cache|.*-$)|tmp|root|srv)(/|$)"
)
IN_ROOT = 'mount --bind /dev "$1/dev" && mount -t proc proc "$1/proc" && exec chroot "$@"'
WITHOUT_SYSTEMD = """
runuser -u snug -- snugd --config /etc/snug/snugd.yaml >/var/log/snugd.log 2>&1 &
until snug list >/dev/null 2>&1; do sleep 0.1; done
snug submit /srv/job/lora.yaml training.max_steps=2 --watch
"""
# A job that runs on through a restart of the daemon, in the unit of its own that it began in.
UNDER_SYSTEMD = """
until snug list >/dev/null 2>&1; do sleep 0.1; done
systemctl is-active snugd.service snug-worker.socket
job=$(snug submit /srv/job/lora.yaml training.max_steps=4000 training.eval_steps=100000)
units() { systemctl list-units --plain --no-legend 'snug-worker@*' | cut -d' ' -f1; }
until [ -n "$(units)" ]; do sleep 0.1; done
before=$(units)
systemctl restart snugd.service
until snug list >/dev/null 2>&1; do sleep 0.1; done
[ "$before" = "$(units)" ] && echo same unit
pid=$(systemctl show --property MainPID --value "$before")
tr '\\0' ' ' </proc/$pid/cmdline; echo
grep -E '^(NoNewPrivs|Seccomp|CapBnd):' /proc/$pid/status
grep -h 'snug-shim: the kernel' /var/lib/snug/jobs/"$job"/attempts/1/worker.log
snug watch "$job" | tail -n 3
systemctl show --property Result --value snugd.service
apt-get purge -y snug
echo left: $(systemctl list-units --plain --no-legend '*snug*') $(grep -ls snug /proc/[0-9]*/comm)
"""
UNIT = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c '/bin/sh /root/script >/root/said 2>&1'
ExecStopPost=systemctl --no-block poweroff
"""


def run(*words, **named):
    words = [str(word) for word in words]
    done = subprocess.run(words, capture_output=True, text=True, check=False, **named)
    if done.returncode != 0:
        raise AssertionError(f"{words} exited {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def package(folder):
    """The package to be tested."""
    if "SNUG_DEB" in os.environ:
        return pathlib.Path(os.environ["SNUG_DEB"])
    run("cpack", "--config", BUILD / "CPackConfig.cmake", "-G", "DEB", "-B", folder)
    (found,) = folder.glob("snug_*.deb")
    return found


class Root:
    """A Debian in a folder."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, *words):
        """A command in it, in namespaces of its own, with which all that it started ends."""
        apart = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
        return run(*apart, "sh", "-c", IN_ROOT, "sh", self.folder, *words, env=environment)

    def boot(self, script):
        """Has systemd start there, run the script, and stop; what the script said."""
        (self.folder / "root/script").write_text(script)
        units = self.folder / "etc/systemd/system"
        (units / "script.service").write_text(UNIT)
        wants = units / "multi-user.target.wants"
        (wants / "script.service").symlink_to("../script.service")
        line = ("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot")
        subprocess.run([*line, "-D", self.folder], capture_output=True, timeout=600, check=False)
        (wants / "script.service").unlink()
        return (self.folder / "root/said").read_text()

    def files(self):
        """All of its paths but what apt and dpkg keep of any package."""
        found = set()
        for folder, _, names in os.walk(self.folder):
            here = folder[len(str(self.folder)) :]
            found.update(f"{here}/{name}" for name in ("", *names))
        return {path for path in found if not LEAVINGS.match(path)}

    def users(self):
        return (self.folder / "etc/passwd").read_text() + (self.folder / "etc/group").read_text()


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="snug-package-"))
        cls.addClassCleanup(shutil.rmtree, cls.work, ignore_errors=True)
        cls.deb = package(cls.work / "cpack")
        run("mmdebstrap", "--variant=minbase", "bookworm", cls.work / "base.tar")
        jobs.lora_folder(cls.work / "job", rows=8)
        run("chmod", "-R", "a+rX", cls.work / "job")

    def root(self, name):
        folder = self.work / name
        folder.mkdir()
        run("tar", "--extract", "--file", self.work / "base.tar", "--directory", folder)
        shutil.copytree(self.work / "job", folder / "srv/job")
        shutil.copy(self.deb, folder / "srv/snug.deb")
        root = Root(folder)
        root.run("apt-get", "update")
        return root

    def install(self, root, *more):
        words = ("apt-get", "install", "-y", "--no-install-recommends", "/srv/snug.deb", *more)
        return root.run(*words)

    def test_without_systemd(self):
        root = self.root("plain")
        before, users = root.files(), root.users()
        began = time.monotonic()
        self.install(root)
        installed = time.monotonic()
        said = root.run("sh", "-c", WITHOUT_SYSTEMD)
        ended = time.monotonic()
        self.assertIn("SUCCEEDED", said)
        print(
            f"\nfrom the package to the end of a job of two steps: {ended - began:.0f} s, "
            f"{installed - began:.0f} s of them apt-get install",
            file=sys.stderr,
        )
        self.assertLess(ended - began, FIRST_STEP_S)
        self.check_completions_and_pages(root)
        root.run("apt-get", "remove", "-y", "snug")
        self.assertTrue((root.folder / "var/lib/snug/snug.db").is_file())
        self.assertTrue((root.folder / "etc/snug/snugd.yaml").is_file())
        self.assertFalse((root.folder / "usr/lib/snug").exists())
        # apt itself recommends ca-certificates, and keeps what is recommended unless it is told.
        alone = ("-o", "APT::AutoRemove::RecommendsImportant=false")
        root.run("apt-get", "purge", "-y", "--autoremove", *alone, "snug")
        self.assertEqual(set(), root.files() - before)
        self.assertEqual(users, root.users())

    def check_completions_and_pages(self, root):
        pages = ("man1/snug.1", "man1/snug-sim.1", "man8/snugd.8")
        for name in (*(f"man/{page}" for page in pages), "bash-completion/completions/snug"):
            self.assertTrue((root.folder / "usr/share" / name).is_file(), name)
        root.run("bash", "-n", "/usr/share/bash-completion/completions/snug")

    # What the container file's stages run, as far as the image of Debian's name is that Debian. The
    # first takes the time and the disk of a build: of it, whether apt has what it asks for.
    def test_container_file(self):
        root = self.root("container")
        asked = (ROOT / "deploy/packages.txt").read_text().splitlines()
        packages = [name for name in asked if not name.startswith("#")]
        root.run("apt-get", "install", "--simulate", "--no-install-recommends", *packages)
        last = stages()[-1]
        (root.folder / "package").mkdir()
        shutil.copy(self.deb, root.folder / "package/snug_1_all.deb")
        root.run("sh", "-ec", re.sub(r"--mount=\S+ ", "", last.one("RUN")))
        start = " ".join(json.loads(last.one("CMD")))
        script = f"{start} & until snug list; do sleep 0.1; done 2>/dev/null"
        words = ("runuser", "-u", last.one("USER"), "--", "env", last.one("ENV"), "sh", "-c")
        self.assertIn("no jobs", root.run(*words, script))

    def test_under_systemd(self):
        root = self.root("booted")
        self.install(root, "systemd-sysv")
        said = root.boot(UNDER_SYSTEMD)
        lines = said.splitlines()
        self.assertEqual(lines[:2], ["active", "active"], said)
        self.assertIn("same unit", lines, said)
        self.assertRegex(said, r"(?m)^/usr/lib/snug/bin/snug-shim /var/lib/snug/jobs/")
        for line in ("NoNewPrivs:\t1", "Seccomp:\t2", "CapBnd:\t0000000000000000"):
            self.assertIn(line, lines, said)
        # By the machine's version of control groups; under version 2 there is a limit.
        limit = r"\[snug-shim: the kernel (gives the worker \d+ bytes|does not limit)"
        self.assertRegex(said, limit)
        if (pathlib.Path("/sys/fs/cgroup") / "cgroup.controllers").exists():
            self.assertIn("the kernel gives the worker", said)
        self.assertIn("SUCCEEDED at step 4000 of 4000", said)
        self.assertIn("success", lines, said)
        self.assertEqual(lines[-1], "left:", said)
        self.assertFalse((root.folder / "var/lib/snug").exists())
        self.assertNotIn("snug", root.users())


if __name__ == "__main__":
    unittest.main()
