"""Three jobs at once on one device: each ends with the weights that it reaches alone, and at no
sample is more promised, or counted by the workers, than the device has."""

import unittest

from tests.fault import runs
from tests.harness.daemon import ENDED, Daemon

STEPS = 60
CAPACITY = 4 << 30
# Two threads per worker or one round differently; with as many as before nothing does.
SETTINGS = "devices:\n- {name: cpu:0, capacity: 4GiB, threads_per_job: 1}\n"


class PackingTest(unittest.TestCase):
    def setUp(self):
        self.seen = []  # Bytes of workers' processes, in any sample.
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.daemon.restart_with(SETTINGS)
        lora = self.daemon.folder / "lora"
        self.jobs = [
            runs.full_job(self.daemon.folder / "full", STEPS),
            runs.lora_job(lora, STEPS, "fp32"),
            (*runs.lora_job(lora, STEPS, "fp32"), "lora.r=4", "training.learning_rate=1e-3"),
        ]

    def sample(self):
        """What is promised on the device, and the most that was counted of its jobs."""
        (device,) = self.daemon.json("devices")["devices"]
        live = self.daemon.json("list")["jobs"]
        counted = sum(int(job["memory"]["measured_peak_bytes"]) for job in live)
        self.assertLessEqual(int(device["reserved_bytes"]), CAPACITY)
        self.assertLessEqual(counted, CAPACITY)
        for each in device["reservations"]:
            promised = int(each["reserved_bytes"]) + int(each["shared_bytes"])
            self.assertLessEqual(int(each["counted_bytes"]), promised)
            self.seen.append(int(each["seen_bytes"]))
        return sum(job["state"] == "RUNNING" for job in live)

    def test_jobs_end_with_the_weights_that_they_reach_alone(self):
        alone = [runs.Undisturbed(self.daemon, job, STEPS) for job in self.jobs]
        names = [self.daemon.submit(*job) for job in self.jobs]
        most = 0
        while any(self.daemon.job(name)["state"] not in ENDED for name in names):
            most = max(most, self.sample())
        self.assertEqual(most, len(names))
        self.assertGreater(max(self.seen), 1 << 20)
        for undisturbed, name in zip(alone, names):
            undisturbed.check(self, self.daemon, name, epoch=1)


if __name__ == "__main__":
    unittest.main()
