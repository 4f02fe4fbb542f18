"""Jobs over one base on a device that holds the base once: all run at once, each ends with the
weights that it reaches alone, and what the kernel sees of their processes is what was promised."""

import unittest

import torch

from tests.fault import runs
from tests.harness import jobs, models
from tests.harness.daemon import ENDED, Daemon, wait_for

STEPS = 120
# Two threads per worker or one round differently; with as many as before nothing does.
SETTINGS = "devices:\n- {{name: cpu:0, capacity: {}, threads_per_job: 1}}\n"
# Weights that are most of what a worker takes beside its own context.
SHAPE = models.Shape(
    layers=4,
    width=256,
    heads=4,
    head_width=64,
    mlp_width=704,
    vocabulary=jobs.VOCABULARY,
    max_positions=512,
)
KEEP = 'memory.stash={"*": keep}'
KINDS = (
    ("lora.r=8",),
    ("lora.r=2", "lora.lora_alpha=4", "training.learning_rate=1e-3"),
    ("lora.r=4", 'lora.target_modules=["q_proj", "v_proj"]'),
    ("lora.r=8", "training.seed=5"),
)


def proportional_bytes(pid):
    """Of a process: pages that n processes map count as an n-th of them. All of them, and those of
    files that jobs share."""
    total = shared = 0
    of_shared = False
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as maps:
        for line in maps:
            words = line.split()
            if not words[0].endswith(":"):
                of_shared = "/state/weights/" in line
            elif words[0] == "Pss:":
                total += int(words[1]) * 1024
                shared += int(words[1]) * 1024 if of_shared else 0
    return total, shared


class SharingTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.daemon.restart_with(SETTINGS.format("4GiB"))

    def job(self, *changes, precision="fp32"):
        """Of a base in bf16, which is converted or quantised before anybody computes with it."""
        folder = self.daemon.folder / "lora"
        if not folder.exists():
            jobs.lora_folder(folder, shape=SHAPE, dtype=torch.bfloat16)
        steps = (
            f"training.max_steps={STEPS}",
            f"training.save_steps={STEPS}",
            "training.per_device_train_batch_size=1",
            "training.packing=false",
        )
        return (folder / "lora.yaml", *steps, f"training.precision={precision}", KEEP, *changes)

    def shared(self):
        """The weights that are held in common, and the sum of what else is reserved."""
        (device,) = self.daemon.json("devices")["devices"]
        weights = device.get("shared_weights", [])
        own = sum(int(each["reserved_bytes"]) for each in device["reservations"])
        common = sum(int(each["bytes"]) for each in weights)
        self.assertEqual(int(device["reserved_bytes"]), own + common)
        self.assertLessEqual(own + common, int(device["capacity_bytes"]))
        return weights, own

    def sample(self, capacity):
        """How many workers map the base, and what they take of it; together they take no more than
        the device has."""
        totals, shares = [0], [0]
        for pid in self.daemon.processes("snug-worker"):
            try:
                total, shared = proportional_bytes(pid)
            except OSError:
                continue  # It has just ended.
            totals.append(total)
            shares.append(shared)
        self.assertLessEqual(sum(totals), capacity)
        return sum(share > 0 for share in shares), sum(shares)

    def test_jobs_over_one_base_take_it_once(self):
        alone = [runs.Undisturbed(self.daemon, self.job(*kind), STEPS) for kind in KINDS]
        ended = self.daemon.json("list", "--all")["jobs"]
        memories = [job["memory"] for job in ended]
        shared = {int(memory["shared_bytes"]) for memory in memories}
        own = sum(int(memory["reserved_bytes"]) for memory in memories)
        (base,) = shared
        self.assertGreater(base, 8 << 20)
        capacity = own + base  # A second copy would be too much.
        self.daemon.restart_with(SETTINGS.format(capacity))
        names = [self.daemon.submit(*self.job(*kind)) for kind in KINDS]
        most, samples = 0, []
        while any(self.daemon.job(name)["state"] not in ENDED for name in names):
            weights, _ = self.shared()
            most = max([most, *(each["jobs"] for each in weights)])
            samples.append(self.sample(capacity))
        self.assertEqual(most, len(KINDS))
        # Processes are looked at one after another: some sample sees all of them at rest.
        together = [taken for mapping, taken in samples if mapping == len(KINDS)]
        self.assertLessEqual(min(together), base + (1 << 20))
        for undisturbed, name in zip(alone, names):
            undisturbed.check(self, self.daemon, name, epoch=1)
        self.assertEqual(self.shared(), ([], 0))
        wait_for(lambda: not self.files(), "the shared file to be removed")

    def files(self):
        return [file.name for file in self.daemon.state.glob("weights/*/*")]

    def test_who_shares_nothing_has_a_copy_of_its_own(self):
        name = self.daemon.submit(*self.job("sharing=none", "training.max_steps=2"))
        memory = self.daemon.wait_state(name, "SUCCEEDED")["memory"]
        self.assertEqual(int(memory["shared_bytes"]), 0)
        self.assertEqual(memory["reserved_bytes"], memory["budget_bytes"])
        refused = self.daemon.run("submit", *self.job("sharing=all"), code=None)
        self.assertIn("sharing", refused.stderr)
        self.assertIn("auto, weights or none", refused.stderr)

    def test_quantised_weights_are_shared_through_the_daemons_death(self):
        lines = [self.job("quantization=nf4", f"training.seed={seed}") for seed in (1, 2)]
        names = [self.daemon.submit(*line) for line in lines]
        for name in names:
            self.daemon.wait_step(name, 1)
        (before,), own = self.shared()
        self.daemon.kill()
        self.daemon.start()
        (after,), own_after = self.shared()
        self.assertEqual((after, own_after), (before, own))
        self.assertEqual(after["jobs"], 2)
        self.assertEqual(self.files(), [after["digest"]])
        for name in names:
            self.daemon.wait_state(name, "SUCCEEDED")


if __name__ == "__main__":
    unittest.main()
