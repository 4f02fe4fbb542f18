"""A new user's first hour, typed into a terminal: what is installed by `cmake --install`, own data
whose columns have other names, mistakes that one makes, and a job from its plan to its serving.

    python -m tests.deploy.newcomer_test

prints each screen as the user sees it, to be looked at; the assertions hold what must be there.
"""

import csv
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from tests.harness.binaries import ROOT, binary

BUILD = pathlib.Path(str(binary("snug"))).parent.parent
COLUMNS, LINES = 120, 50
COLUMNS_OF_JOB = "columns: {prompt: Question, completion: reply}"
TRAINING = "training: {max_steps: 400, per_device_train_batch_size: 8, logging_steps: 1}"
PROMPT = "you$ "
NOBODY = 65534  # Root has other folders than everybody else.
WAIT_S = 120.0
AS_USER = (
    ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    if os.geteuid() == 0
    else []
)


class Terminal:
    """A tmux server of its own with one window, 120 by 50."""

    def __init__(self, folder, environment):
        self._socket = folder / "tmux"
        self._tmux("-f", os.devnull, "new-session", "-d", "-x", COLUMNS, "-y", LINES, "-c", folder,
                   *AS_USER, "env", "-i", *(f"{key}={value}" for key, value in environment.items()),
                   "bash", "--norc", "--noprofile")
        self.prompt("the start")

    def _tmux(self, *words):
        words = ["tmux", "-S", self._socket, *words]
        return subprocess.run([str(word) for word in words], capture_output=True, text=True,
                              check=True).stdout

    def _until(self, condition, what):
        end = time.monotonic() + WAIT_S
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"waited for {what}; the screen:\n{self.screen()}")
            time.sleep(0.1)

    def screen(self):
        """What is to be seen, without the empty lines below."""
        return self._tmux("capture-pane", "-p").rstrip()

    def keys(self, *keys):
        self._tmux("send-keys", *keys)

    def wait(self, pattern):
        """Until the screen shows it; returns the screen."""
        self._until(lambda: re.search(pattern, self.screen()), pattern)
        return self.screen()

    def start(self, line):
        """Types a line onto a clean screen, and leaves it running."""
        self.keys("C-l")
        self._until(lambda: self.screen() == PROMPT.strip(), "a clean screen")
        self._tmux("send-keys", "-l", line)
        self.keys("Enter")

    def run(self, line):
        """Types a line and waits for the next prompt; returns what is on the screen."""
        self.start(line)
        self.prompt(line)
        return self.shown()

    def prompt(self, after):
        self._until(lambda: self.screen().endswith(PROMPT.strip()), f"the end of {after}")

    def shown(self):
        screen = self.screen()
        print("-" * COLUMNS, screen, sep="\n", flush=True)
        return screen

    def close(self):
        self._tmux("kill-server")


class NewcomerTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="snug-new-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        home = self.folder / "snug"
        subprocess.run(["cmake", "--install", BUILD, "--prefix", home], check=True,
                       capture_output=True)
        self.write_what_a_user_has()
        run = self.folder / "run"
        run.mkdir(mode=0o700)
        environment = {
            "PATH": f"{home}/bin:/usr/bin:/bin",
            "HOME": str(self.folder),
            "XDG_RUNTIME_DIR": str(run),
            "TERM": "screen-256color",
            "LANG": "C.UTF-8",
            "PS1": PROMPT,
        }
        (self.folder / "mine").mkdir()
        self.folder.chmod(0o755)
        if AS_USER:
            for path in (self.folder, *self.folder.rglob("*")):
                os.lchown(path, NOBODY, NOBODY)
        self.daemon = Terminal(run, environment)
        self.addCleanup(self.end)
        self.user = Terminal(self.folder / "mine", environment)
        self.addCleanup(self.user.close)

    def end(self):
        self.daemon.keys("C-c")
        time.sleep(2)
        self.daemon.close()

    def write_what_a_user_has(self):
        """A small model with a chat template, and a spreadsheet of questions."""
        examples = self.folder / "examples"
        shutil.copytree(ROOT / "examples", examples, ignore=shutil.ignore_patterns("model", "data"))
        subprocess.run([sys.executable, examples / "make.py"], check=True, capture_output=True)
        with open(self.folder / "faq.csv", "w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["id", "Question", "reply"])
            for i in range(200):
                rows.writerow([i, f"Where is the red house number {i}?", f" Behind tree {i}."])

    def job(self, *lines):
        text = ["model: ../examples/model", "dataset: ../faq.csv", "method: lora", *lines, ""]
        (self.folder / "mine" / "job.yaml").write_text("\n".join(text))

    def test_from_install_to_serving(self):
        self.job()
        self.before_the_daemon()
        self.own_data()
        job = self.plan_and_submit()
        self.look(job)
        self.ask(job)
        self.take(job)

    def before_the_daemon(self):
        """The README's order is not everybody's."""
        screen = self.user.run("snug plan job.yaml")
        self.assertRegex(screen, r"cannot reach a daemon")
        self.assertIn("Start one:", screen)
        self.daemon.start("snugd --device cpu:0=1GiB --metrics-port 0")
        self.daemon.wait("serving on")
        self.daemon.shown()

    def own_data(self):
        """Columns of other names: what is wrong, what is near, what is trained."""
        screen = self.user.run("snug plan job.yaml")
        self.assertIn("keys: Question, id, reply", screen)
        self.assertRegex(screen.replace("\n", ""), "names of your own go into the job's columns")
        self.job("columns: {prompt: question, completion: reply}")
        self.assertIn('did you mean "Question"?', self.user.run("snug plan job.yaml"))
        self.job(COLUMNS_OF_JOB)
        screen = self.user.run("snug datasets preview job.yaml --rows 2")
        self.assertIn("Where is the red house number 1?", screen)
        self.assertIn("Behind tree 1.", screen)

    def plan_and_submit(self):
        self.job(COLUMNS_OF_JOB, "training: {learning_rate: 0.1}")
        self.assertIn("times the usual", self.user.run("snug plan job.yaml"))
        self.job(COLUMNS_OF_JOB, TRAINING)
        screen = self.user.run("snug plan job.yaml")
        self.assertRegex(screen, r"\n +PLAN .* FITS\n")  # On one line: the table is no wider.
        self.assertIn("choice   keep", screen)
        self.user.start("snug submit job.yaml --watch")
        self.user.wait(r"step \d+")
        self.user.shown()
        self.user.keys("C-c")
        self.user.prompt("Ctrl-C")
        self.assertIn("the job goes on", self.user.shown())
        job = re.search(r"job-\w+", self.user.run("snug list --all"))[0]
        self.assertIn("SUCCEEDED at step 400", self.user.run(f"snug watch {job}"))
        self.assertIn("measured peak", self.user.run(f"snug get {job}"))
        return job

    def look(self, job):
        self.assertIn("\nloss\n", self.user.run(f"snug plot {job}"))
        self.user.run(f"snug plot {job} --svg loss.svg")
        self.assertIn("<polyline", (self.folder / "mine" / "loss.svg").read_text())
        self.user.run(f"snug plot {job} --png loss.png")
        png = (self.folder / "mine" / "loss.png").read_bytes()
        self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")

    def ask(self, job):
        for flags in ("", " --base"):
            self.user.start(f"snug chat {job}{flags}")
            self.assertIn("/quit", self.user.wait(r"\n>$"))
            self.user.keys("-l", "Where is the red house number 7?")
            self.user.keys("Enter")
            self.assertIn("Behind tree", self.user.wait(r"(?s)7\?\n.+\n>$"))
            self.user.shown()
            self.user.keys("C-d")
            self.user.prompt("Ctrl-D")
        self.assertRegex(self.user.screen(), "(?s)tuned:.*base:")

    def take(self, job):
        screen = self.user.run(f"snug download {job} ./adapter")
        self.assertIn("vllm serve", screen)
        # What is printed for transformers runs as it stands.
        lines = re.search(r"(?s)\ntransformers\n(.*)\nvLLM\n", screen)[1]
        program = "\n".join(line.strip() for line in lines.split("\n"))
        subprocess.run([sys.executable, "-c", program], cwd=self.folder / "mine", check=True)
        self.user.run(f"snug download {job} ./again --push me/faq-lora")
        self.assertIn("hf upload me/faq-lora", self.user.screen())
        self.assertIn("# me/faq-lora", (self.folder / "mine" / "again" / "README.md").read_text())


if __name__ == "__main__":
    unittest.main()
