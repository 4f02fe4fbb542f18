"""Each commit, fsync, rename, spawn and message of the server has a failpoint (server/failpoint.h),
and each failpoint is one that the crash harness lets act (tests/fault/crash/points.cc)."""

import os
import pathlib
import re
import unittest

from tests.harness.binaries import binary

ROOT = pathlib.Path(os.environ["SNUG_SOURCE_DIR"])
# The rows of the harness's table as (name, program).
ROW = re.compile(r'(?m)^      \{"([\w.]+)", k(Daemon|Restore|Shim|Worker),')
KNOWN = dict(ROW.findall((ROOT / "tests/fault/crash/points.cc").read_text(encoding="utf-8")))
CALL = re.compile(
    r"(?<![\w.>:])"
    r"(?:rename|renameat2?|fsync|fdatasync|posix_spawnp?|exec[lv]p?e?|v?fork|sendmsg|send)\("
    r"|std::filesystem::rename\(|\bfs::rename\(|Execute\(\"COMMIT\"\)|parts_\.post\("
    r"|shim::SendWithDescriptors\("
)
POINT = re.compile(r"\b(?:FAILPOINT|FAILS_AT)\(\"([\w.]+)\"\)")
NEAR = 4  # Lines: a point stands beside what it is of.
# A file with the text of the call that needs none, and why.
EXCEPTIONS = {
    ("server/http/connection.cc", "send("): "what an answer tells is done, whoever hears it or not",
    ("server/shim/descriptor_message.cc", "sendmsg("): "whoever calls it has a point",
    ("server/shim/confine_main.cc", "execvp("): "what it starts writes nothing durable",
    ("server/shim/launch.cc", "send("): "a launch that fails is heard as a hang-up, as any other",
    ("server/shim/launch.cc", "execve("): "a launch that fails is heard as a hang-up, as any other",
}


def sources():
    """The server's sources by path."""
    paths = (path for path in (ROOT / "server").rglob("*") if path.suffix in (".cc", ".h"))
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def bare(path, text):
    """Calls without a point beside them as (line, call), and the exceptions that were of use."""
    lines = [line.split("//", maxsplit=1)[0] for line in text.splitlines()]
    found, used = [], set()
    for at, line in enumerate(lines):
        for call in CALL.findall(line):
            near = "\n".join(lines[max(0, at - NEAR) : at + NEAR + 1])
            if (path, call) in EXCEPTIONS:
                used.add((path, call))
            elif not POINT.search(near):
                found.append((at + 1, call))
    return found, used


class PointsTest(unittest.TestCase):
    def test_everything_durable_has_a_point(self):
        calls, used = 0, set()
        for path, text in sources().items():
            found, excepted = bare(path, text)
            self.assertEqual(found, [], f"{path}: no failpoint beside it")
            calls += len(CALL.findall(text))
            used |= excepted
        self.assertGreater(calls, 20)  # It did find them.
        self.assertEqual(used, set(EXCEPTIONS), "an exception of which nothing is left")

    def test_a_forgotten_one_is_found(self):
        for line in (
            "  if (rename(a, b) != 0) return;",
            "  return fsync(fd);",
            "  if (status.ok()) status = Execute(\"COMMIT\");",
            "  send(fd, bytes, 3, 0);",
            "  fs::rename(a, b);",
        ):
            self.assertEqual(len(bare("server/a.cc", line)[0]), 1, line)
            self.assertEqual(bare("server/a.cc", f'FAILPOINT("a.b");\n{line}')[0], [], line)

    def test_each_point_is_known_and_compiled(self):
        self.assertGreater(len(KNOWN), 50)  # The table was read.
        listing = (ROOT / "server/CMakeLists.txt").read_text(encoding="utf-8")
        failing = set(re.search(r"set\(failing ([^)]*)\)", listing)[1].split())
        failing |= {"shim/shim", "shim/worker_log"}
        names = set()
        for path, text in sources().items():
            if path == "server/failpoint.h":
                continue
            found = POINT.findall(text)
            names |= set(found)
            if found:
                self.assertIn(path.removeprefix("server/").removesuffix(".cc"), failing)
        workers = (ROOT / "tests/server/testing/fake_worker.cc").read_text(encoding="utf-8")
        names |= set(POINT.findall(workers))
        self.assertEqual(names, set(KNOWN))

    # Neither the points nor their names are in what is installed.
    def test_release_builds_have_no_failpoints(self):
        failing = pathlib.Path(os.environ["SNUG_FAILING_DAEMON"]).read_bytes()
        failing += pathlib.Path(os.environ["SNUG_FAILING_SHIM"]).read_bytes()
        released = binary("snugd").read_bytes() + binary("snug-shim").read_bytes()
        self.assertNotIn(b"SNUG_FAILPOINT", released)
        for name, program in KNOWN.items():
            self.assertNotIn(name.encode() + b"\0", released, name)
            if program != "Worker":
                self.assertIn(name.encode() + b"\0", failing, name)


if __name__ == "__main__":
    unittest.main()
