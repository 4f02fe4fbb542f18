"""The container file as far as no container runtime is needed: its stages fit one another and the
tree. tests/deploy/package_test.py runs what its second stage runs."""

import json
import pathlib
import re
import subprocess
import unittest

from tests.harness.binaries import ROOT, binary

BUILD = pathlib.Path(str(binary("snug"))).parent.parent


class Stage:
    """One FROM of a container file and what follows it, as (instruction, rest)."""

    def __init__(self, base, name, steps):
        self.base, self.name, self.steps = base, name, steps

    def all(self, instruction):
        return [rest for word, rest in self.steps if word == instruction]

    def one(self, instruction):
        (rest,) = self.all(instruction)
        return rest


def stages(path=ROOT / "deploy/Dockerfile"):
    """The stages of a container file in their order."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found = []
    for line in filter(None, text.splitlines()):
        word, rest = line.split(maxsplit=1)
        rest = re.sub(r" +", " ", rest)
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found.append(Stage(base, name, []))
        else:
            found[-1].steps.append((word, rest))
    return found


class ContainerTest(unittest.TestCase):
    def setUp(self):
        self.build, self.last = stages()

    def test_every_instruction_is_one_of_a_container_file(self):
        known = {"WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "CMD"}
        for stage in (self.build, self.last):
            self.assertEqual(stage.base, "debian:12-slim")
            self.assertLessEqual({word for word, _ in stage.steps}, known)

    # What is copied is the tree without what .gitignore names, and holds what the stage runs.
    def test_the_build_stage_runs_what_the_tree_has(self):
        self.assertEqual(self.build.one("COPY"), ". .")
        ignored = set((ROOT / "deploy/Dockerfile.dockerignore").read_text().split())
        self.assertLessEqual({"/.git", "/.venv", "/.cache", "/build*"}, ignored)
        setup, commands = self.build.all("RUN")
        self.assertTrue((ROOT / setup.split()[0]).stat().st_mode & 0o111)
        self.assertIn(f"   {' '.join(setup.split()[:2])} ", (ROOT / setup.split()[0]).read_text())
        presets = json.loads((ROOT / "CMakePresets.json").read_text())
        named = {preset["name"] for preset in presets["configurePresets"]}
        self.assertLessEqual(set(re.findall(r"--preset (\w+)", commands)), named)
        target = re.search(r"--target (\w+)", commands)[1]
        words = ["ninja", "-C", BUILD, "-t", "query", target]
        asked = subprocess.run(words, capture_output=True, text=True, check=True)
        beside = ("snug-worker", "snug-shim", "snug-launch", "snug-confine", "snug-inspect")
        for name in ("snugd", "snug", *beside):
            self.assertIn(f"bin/{name}\n", asked.stdout)

    # cpack writes where the second stage takes the package from, under the name that it asks for.
    def test_the_stages_hand_over_the_package(self):
        folder = re.search(r"-B (\S+)", self.build.all("RUN")[-1])[1]
        run = self.last.one("RUN")
        words = re.match(r"--mount=(\S+)", run)[1]
        mount = dict(pair.split("=") for pair in words.split(","))
        self.assertEqual((mount["from"], mount["source"]), (self.build.name, folder))
        self.assertIn(f" {mount['target']}/snug_*.deb ", run)

    def test_what_it_starts_is_what_the_package_installs(self):
        program, flag, settings = json.loads(self.last.one("CMD"))
        self.assertEqual((program, flag), ("snugd", "--config"))
        self.assertIn(settings, (ROOT / "deploy/debian/conffiles").read_text().split())
        text = (ROOT / "deploy/debian" / pathlib.Path(settings).name).read_text()
        socket = self.last.one("ENV").removeprefix("SNUG_SERVER=unix:")
        self.assertRegex(text, rf"(?m)^socket: {socket}\b")
        self.assertRegex(text, rf"(?m)^state_dir: {self.last.one('VOLUME')}$")
        users = (ROOT / "deploy/debian/sysusers.conf").read_text()
        self.assertTrue(users.startswith(f"u {self.last.one('USER')} "))


if __name__ == "__main__":
    unittest.main()
