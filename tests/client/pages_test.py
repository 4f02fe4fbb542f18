"""What pages name exists, and what exists is named: keys of a job file in docs/job-file.md,
commands and options of snug in docs/commands.md, settings and flags of snugd in docs/operating.md,
formats in docs/datasets.md, keys of other tools in docs/import.md. A link between pages leads
somewhere."""

import pathlib
import re
import subprocess
import unittest

from tests.harness.binaries import ROOT, binary

SCHEMA = (ROOT / "proto/snug/v1/job.proto").read_text(encoding="utf-8")
# What a job file's groups are in the schema.
GROUPS = {"": "JobSpec", "lora": "LoraSpec", "training": "TrainingSpec", "memory": "MemorySpec"}
NO_KEYS = {"memory.stash_options"}  # A job file writes them within memory.stash.
# Flags by which snugd stands for a key of its configuration in some other form, or none.
NO_SETTINGS = {"restore", "accept_loss"}


def rows(page):
    """The cells of each table row of a page; a bar inside a cell is escaped."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def fields(message, schema=SCHEMA):
    (body,) = re.findall(rf"(?sm)^message {message} {{\n(.*?)^}}", schema)
    return set(re.findall(r"(?m)^  [\w. <>,]+ ([a-z]\w*) = \d+", body))


def keys_of_schema():
    known = {f"{group}.{name}".strip(".") for group, of in GROUPS.items() for name in fields(of)}
    return known - set(GROUPS)


def keys_of_page():
    """A cell may name several of a group, the later ones without it."""
    found = set()
    for cells in rows("job-file.md"):
        group = ""
        for key in re.findall(r"`([\w.]+)`", cells[0]):
            group, _, name = key.rpartition(".") if "." in key else (group, "", key)
            found.add(f"{group}.{name}".strip("."))
    return found - set(GROUPS)


def commands():
    """{words of a command: its options} by the manual page."""
    page = subprocess.run([binary("snug"), "shell", "man"], capture_output=True, text=True).stdout
    found = {}
    for section in re.split(r"(?m)^\.SS ", page.replace("\\-", "-"))[1:]:
        head, text = section.split("\n", 1)
        words = " ".join(word for word in head.split() if not word.isupper())
        found[words] = set(re.findall(r"(--[\w-]+)", "\n".join(re.findall(r"(?m)^\.B (.*)", text))))
    return found


class JobFilePageTest(unittest.TestCase):
    def test_each_key_is_there_and_exists(self):
        page, schema = keys_of_page(), keys_of_schema()
        self.assertGreater(len(schema), 70)
        self.assertEqual(schema - page - NO_KEYS, set(), "the page does not name these")
        self.assertEqual(page - schema, set(), "there are no such keys")


class CommandsPageTest(unittest.TestCase):
    def setUp(self):
        self.known = commands()
        self.named = {}  # As `known`, of the page's first column.
        for cells in rows("commands.md"):
            for code in re.findall(r"`([^`]+)`", cells[0]):
                words = code.replace("\\|", "|").split()
                name = " ".join(words[:2])
                name = name if name in self.known else words[0]
                self.named.setdefault(name, set()).update(re.findall(r"--[\w-]+", code))
                for other in code.split("|")[1:] if name.startswith("shell") else ():
                    self.named["shell " + other.strip("\\ ")] = set()

    def test_each_command_is_there(self):
        parents = {name.rpartition(" ")[0] for name in self.known}
        missing = set(self.known) - set(self.named) - parents
        self.assertEqual({name for name in missing if not name.startswith("shell ")}, set())

    def test_options_are_the_commands_own(self):
        self.assertGreater(sum(map(len, self.named.values())), 10)
        for name, options in self.named.items():
            if name in self.known:
                self.assertEqual(options - self.known[name], set(), name)


class OperatingPageTest(unittest.TestCase):
    def setUp(self):
        self.schema = (ROOT / "proto/snug/v1/config.proto").read_text(encoding="utf-8")
        text = (ROOT / "docs/operating.md").read_text(encoding="utf-8")
        table = text[: text.index("\nBeside `snug.v1")]
        self.keys = re.findall(r"(?m)^\| (`[^|]*) \|([^|]*)\|", table)
        self.synopsis = text[: text.index("| key |")]

    def test_each_setting_is_there_and_exists(self):
        named = set()
        for cell, _ in self.keys:
            named |= {key.split(".")[0] for key in re.findall(r"`([\w.]+)`", cell.split(" (")[0])}
        self.assertEqual(fields("DaemonConfig", self.schema) - NO_SETTINGS, named)

    def test_settings_below_a_key_exist(self):
        body = self.schema[: self.schema.index("message ListenConfig")]
        pairs = re.findall(r"(?m)^  (?:repeated )?(\w+) (\w+) = \d+;", body)
        kinds = {name: kind for kind, name in pairs}
        for cell, _ in self.keys:
            head, _, below = cell.partition(" (")
            for key in re.findall(r"`([a-z_]+)`", below):
                known = fields(kinds[head.strip("`")], self.schema)
                self.assertIn(key, known | fields("KeepLimits", self.schema), head)

    def test_flags_are_the_programs_own(self):
        said = subprocess.run([binary("snugd"), "--help"], capture_output=True, text=True).stdout
        flags = set(re.findall(r"--[a-z-]+", said)) - {"--help", "--version"}
        cells = "".join(flag for _, flag in self.keys)
        named = set(re.findall(r"--[a-z-]+", self.synopsis + cells))
        self.assertEqual(named - flags, set(), "there are no such flags")
        page = (ROOT / "docs/operating.md").read_text(encoding="utf-8")
        self.assertEqual({flag for flag in flags if flag not in page}, set(), "not on the page")


class DatasetsPageTest(unittest.TestCase):
    def test_each_format_is_there(self):
        (body,) = re.findall(r"(?s)enum DatasetFormat {(.*?)}", SCHEMA)
        names = re.findall(r"(?m)^ +DATASET_FORMAT_([A-Z_]+) = [1-9]", body)
        formats = {name.lower() for name in names}
        self.assertGreater(len(formats), 8)
        named = {cells[0].strip("`") for cells in rows("datasets.md")}
        self.assertEqual(formats - named, set())


class ImportPageTest(unittest.TestCase):
    def test_keys_are_read(self):
        files = [*(ROOT / "client").glob("import*.cc"), ROOT / "proto/snug/other_names.cc"]
        source = "".join(path.read_text(encoding="utf-8") for path in files)
        keys = {
            key
            for cells in rows("import.md")
            for cell in cells[1:]
            for key in re.findall(r"`([a-z_]+)(?:\.\.\.)?`", cell)
        }
        self.assertGreater(len(keys), 25)
        self.assertEqual({key for key in keys if f'"{key}' not in source}, set())


class LinksTest(unittest.TestCase):
    def test_each_leads_somewhere(self):
        broken = []
        for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
            text = page.read_text(encoding="utf-8")
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                path, _, part = target.partition("#")
                if path.startswith(("http:", "https:", "mailto:")):
                    continue
                file = (page.parent / path) if path else page
                if not file.exists() or (part and part not in anchors(file)):
                    broken.append(f"{page.name}: {target}")
        self.assertEqual(broken, [])


def anchors(file):
    """As forges make them of headings."""
    headings = re.findall(r"(?m)^#+ (.*)", pathlib.Path(file).read_text(encoding="utf-8"))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


if __name__ == "__main__":
    unittest.main()
