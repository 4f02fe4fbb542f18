"""/metrics: what an operator scrapes while a job runs and after it has ended."""

import re
import subprocess
import time
import unittest

from tests.harness import jobs
from tests.harness.binaries import DEVICE, ROOT
from tests.harness.daemon import Daemon, wait_for

SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def parse(text):
    """Samples of the exposition format: {name: [(labels, value)]}. Raises on a line that is
    none."""
    families = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = SAMPLE.match(line)
        if not match:
            raise ValueError(f"not a sample: {line!r}")
        name, labels, value = match.groups()
        families.setdefault(name, []).append((dict(LABEL.findall(labels or "")), float(value)))
    return families


class MetricsTest(unittest.TestCase):
    """One daemon, one job that is watched through /metrics."""

    def setUp(self):
        self.daemon = Daemon(device=f"{DEVICE}=3GiB")
        self.addCleanup(self.daemon.close)
        self.file = jobs.full_folder(self.daemon.folder / "full")

    def value(self, name, **labels):
        """The one sample of a name with these labels, or None."""
        found = [
            value
            for have, value in parse(self.daemon.metrics()).get(name, [])
            if all(have.get(key) == wanted for key, wanted in labels.items())
        ]
        self.assertLessEqual(len(found), 1, f"{name} {labels}")
        return found[0] if found else None

    def values(self, name, **labels):
        """All samples of a name with these labels: (labels, value)."""
        return [
            (have, value)
            for have, value in parse(self.daemon.metrics()).get(name, [])
            if all(have.get(key) == wanted for key, wanted in labels.items())
        ]

    def wait_value(self, wanted, name, **labels):
        """Waits until a sample has a value; job counts and bytes follow the event by a moment."""
        wait_for(lambda: self.value(name, **labels) == wanted, f"{name} {labels} to be {wanted}")

    def test_jobs_steps_tokens_and_bytes_are_shown(self):
        self.assertEqual(self.value("snug_jobs", state="RUNNING"), 0)
        self.assertEqual(self.value("snug_device_memory_capacity_bytes", device=DEVICE), 3 << 30)
        name = self.daemon.submit(self.file, "training.max_steps=100000")
        self.daemon.wait_step(name, 2)
        self.wait_value(1, "snug_jobs", state="RUNNING")
        wait_for(lambda: self.value("snug_job_step", job=name) >= 2, "steps of the job")
        wait_for(lambda: self.value("snug_steps_total") >= 2, "steps")
        wait_for(lambda: self.value("snug_tokens_total") > 0, "tokens")
        memory = self.daemon.job(name)["memory"]
        predicted, budget = int(memory["predicted_peak_bytes"]), int(memory["budget_bytes"])
        self.wait_value(predicted, "snug_job_memory_predicted_bytes", job=name)
        self.wait_value(predicted, "snug_device_memory_predicted_bytes", device=DEVICE)
        self.wait_value(budget, "snug_device_memory_reserved_bytes", device=DEVICE)
        for peak in (
            self.value("snug_job_memory_peak_bytes", job=name),
            self.value("snug_device_memory_peak_bytes", device=DEVICE),
        ):
            self.assertTrue(0 < peak <= predicted, peak)
        components = self.values("snug_job_memory_predicted_component_bytes", job=name)
        self.assertEqual(sum(value for _, value in components), predicted)
        ((plan, _),) = self.values("snug_job_plan_info", job=name)
        self.assertEqual(plan["fidelity"], "EXACT")
        self.assertLess(abs(time.time() - self.value("snug_job_heard_timestamp_seconds")), 60)
        self.assertEqual(self.value("snug_queue_wait_seconds_count"), 1)
        self.assertGreater(self.value("snug_scheduler_round_seconds_count"), 0)
        self.assertIsNone(self.value("snug_queue_oldest_timestamp_seconds"))
        self.daemon.run("cancel", name)
        self.daemon.wait_state(name, "CANCELLED")
        self.wait_value(1, "snug_jobs", state="CANCELLED")
        self.wait_value(0, "snug_device_memory_reserved_bytes", device=DEVICE)
        self.assertNotIn(f'job="{name}"', self.daemon.metrics())

    def test_every_step_is_counted_with_its_time(self):
        name = self.daemon.submit(self.file, "training.max_steps=5")
        self.daemon.wait_state(name, "SUCCEEDED")
        self.wait_value(5, "snug_step_seconds_count")
        self.wait_value(5, "snug_steps_total")
        tokens = int(self.daemon.job(name)["progress"]["num_tokens"])
        self.assertEqual(self.value("snug_tokens_total"), tokens)
        self.assertEqual(self.value("snug_memory_measured_to_predicted_ratio_count"), 1)
        self.assertLessEqual(self.value("snug_memory_measured_to_predicted_ratio_sum"), 1)

    def test_every_family_has_help_and_a_name_by_the_rules(self):
        text = self.daemon.metrics()
        types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
        ours = {name: kind for name, kind in types.items() if name.startswith("snug_")}
        self.assertTrue(ours)
        for name, kind in ours.items():
            self.assertRegex(text, rf"# HELP {name} \S+")
            self.assertEqual(name.endswith("_total"), kind == "counter", name)
            self.assertNotRegex(name, r"_(ms|us|mb|gb|percent)\b")
        command = [ROOT / ".venv" / "bin" / "promtool", "check", "metrics"]
        done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
        self.assertNotIn("snug_", done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
