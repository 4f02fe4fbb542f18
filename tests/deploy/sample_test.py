"""The quickstart's sample: what is read of Debian's packages, and that the same machine makes the
same bytes, which transformers can load."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
SCRIPTS = os.path.join(ROOT, "deploy/sample")
sys.path.insert(0, SCRIPTS)

import packages  # noqa: E402

CONTROL = """Package: hello
Status: install ok installed
Source: greetings (2.0)
Section: non-free/devel
Depends: libc6 (>= 2.34), debconf (>= 0.5) | debconf-2.0, libc6
Tag: implemented-in::c, interface::text-mode,
 role::program
Description: example package
 A long text that is not the summary.
 Section: is not one here

Package: no-section
Description: x

Package: no-summary
Section: net

Package: translated
Section: net
Description-en: from a translation
"""


class PackagesTest(unittest.TestCase):
    # The summary is the first line of the description; what lacks a field is no row; the area
    # before the section's slash goes.
    def test_parses_control_data(self):
        found = packages.parse(CONTROL)
        hello = packages.Package(
            "hello",
            "example package",
            "devel",
            source="greetings",
            tags=("implemented-in::c", "interface::text-mode", "role::program"),
            depends=("libc6", "debconf", "debconf-2.0"),
        )
        text = "from a translation"
        translated = packages.Package("translated", text, "net", source="translated")
        self.assertEqual(found, {"hello": hello, "translated": translated})

    # dpkg's own record alone is enough: a minimal machine has no lists of apt.
    def test_a_machine_without_lists_has_packages(self):
        lists = packages._apt_lists
        try:
            packages._apt_lists = lambda: ""
            found = packages.read_packages()
        finally:
            packages._apt_lists = lists
        self.assertGreater(len(found), 100)
        self.assertEqual(len({package.summary for package in found}), len(found))


def hashes(directory):
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, directory)] = hashlib.sha256(file.read()).hexdigest()
    return found


class SampleTest(unittest.TestCase):
    def make(self, directory, rows=150):
        command = [sys.executable, "-B", os.path.join(SCRIPTS, "make_sample.py")]
        command += ["--output", directory, "--rows", str(rows)]
        subprocess.run(command, check=True, capture_output=True, timeout=100)

    def test_same_machine_same_bytes_and_transformers_loads_them(self):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        with tempfile.TemporaryDirectory() as folder:
            first, second = os.path.join(folder, "a"), os.path.join(folder, "b")
            self.make(first)
            self.make(second)
            self.assertEqual(hashes(first), hashes(second))
            self.assertLessEqual({"full.yaml", "lora.yaml", "sections.jsonl"}, set(hashes(first)))
            model = AutoModelForCausalLM.from_pretrained(os.path.join(first, "model"))
            tokenizer = AutoTokenizer.from_pretrained(os.path.join(first, "model"))
            size = sum(parameter.numel() for parameter in model.parameters())
            self.assertTrue(5e6 < size < 10e6, size)
            self.assertEqual(model.config.eos_token_id, tokenizer.eos_token_id)
            self.assert_rows_are_apart(first, tokenizer)

    # Too few to hold a quarter of them out: one is, so that there is something to ask about.
    def test_a_tiny_sample_holds_one_row_out(self):
        with tempfile.TemporaryDirectory() as folder:
            self.make(os.path.join(folder, "a"), rows=3)
            for name, rows in (("sections", 3), ("sections-eval", 1), ("summaries-eval", 1)):
                with open(os.path.join(folder, "a", f"{name}.jsonl"), encoding="utf-8") as file:
                    self.assertEqual(len(file.readlines()), rows, name)

    def assert_rows_are_apart(self, directory, tokenizer):
        rows = {}
        for name in ("sections", "sections-eval"):
            with open(os.path.join(directory, f"{name}.jsonl"), encoding="utf-8") as file:
                rows[name] = [json.loads(line) for line in file]
        trained = {row["prompt"] for row in rows["sections"]}
        self.assertEqual(len(trained), len(rows["sections"]))
        self.assertTrue(trained.isdisjoint(row["prompt"] for row in rows["sections-eval"]))
        text = rows["sections"][0]["prompt"]
        self.assertEqual(tokenizer.decode(tokenizer(text)["input_ids"]), text)


if __name__ == "__main__":
    sys.exit(unittest.main())
