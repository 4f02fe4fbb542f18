"""Jobs that go on from an ended one's last checkpoint. The worker trains nothing
(tests/server/testing/fake_worker.cc).
"""

import re
import shutil
import unittest

from tests.harness import assignments
from tests.harness.fake_daemon import ONE_AT_A_TIME, FakeDaemon

SCRIPT = "step_ms=10"  # As many steps as training.max_steps says.


class ExtendTest(unittest.TestCase):
    def setUp(self):
        self.daemon = FakeDaemon(settings=ONE_AT_A_TIME)
        self.addCleanup(self.daemon.close)

    def ended(self, script=SCRIPT, steps=10, state="SUCCEEDED"):
        """A job with checkpoints at every fifth step."""
        name = self.daemon.submit_script(script, f"training.max_steps={steps}")
        self.daemon.wait_state(name, state)
        return name

    def extend(self, name, steps):
        return self.daemon.run("extend", name, "--steps", steps).stdout.strip()

    def refusal(self, name, steps=5):
        return self.daemon.run("extend", name, "--steps", steps, code=1).stderr

    def check(self, name, steps, epoch=1):
        """It has succeeded in that attempt with these steps alone, each once."""
        job = self.daemon.wait_state(name, "SUCCEEDED")
        self.assertEqual(job["epoch"], epoch)
        self.assertEqual(self.daemon.steps(name, epoch), steps)
        self.assertEqual(int(job["progress"]["max_steps"]), steps[-1])
        return job

    def test_it_trains_so_many_steps_more_and_its_parent_stays_as_it_is(self):
        parent = self.ended()
        before = self.daemon.job(parent)
        job = self.check(self.extend(parent, 7), list(range(11, 18)))
        self.assertEqual((job["parent_job"], job["extends_step"]), (parent, "10"))
        self.assertEqual(job["progress"]["resumed_from_step"], "10")
        spec = before["spec"]
        spec["training"]["max_steps"] = "17"
        self.assertEqual(job["spec"], spec)
        del before["spec"]
        after = self.daemon.job(parent)
        del after["spec"]
        self.assertEqual(after, before)
        # Steps of the parent are its own in the counters.
        self.assertIn('snug_steps_total 17', self.daemon.metrics())
        # As often as one likes, and from its last checkpoint.
        self.check(self.extend(job["id"], 1), [16])

    def test_it_begins_at_the_last_checkpoint_of_one_that_failed(self):
        parent = self.ended("nan_at=13 only_epoch=1 " + SCRIPT, 20, "FAILED")
        # The script's misfortune meets the first attempt that gets there.
        child = self.daemon.wait_state(self.extend(parent, 2), "SUCCEEDED")
        self.assertEqual(self.daemon.steps(child["id"]), [11, 12])

    # Its files may be gone by then: what was prepared of them is not.
    def test_the_dataset_is_not_read_again(self):
        parent = self.ended()
        (self.daemon.jobs / "train.jsonl").unlink()
        self.check(self.extend(parent, 2), [11, 12])

    def test_a_first_attempt_that_is_lost_leaves_the_parents_checkpoint(self):
        parent = self.ended("crash_at=12 only_epoch=1 " + SCRIPT)
        self.check(self.extend(parent, 4), [11, 12, 13, 14], epoch=2)

    def test_later_attempts_go_on_from_its_own_checkpoints(self):
        parent = self.ended("crash_at=18 only_epoch=1 " + SCRIPT)
        job = self.check(self.extend(parent, 10), list(range(11, 21)), epoch=2)
        self.assertEqual(job["progress"]["resumed_from_step"], "15")

    def test_one_that_waits_keeps_its_beginning_over_a_restart(self):
        parent = self.ended()
        busy = self.daemon.submit_script("steps=100000 step_ms=50")
        self.daemon.wait_state(busy, "RUNNING")
        child = self.extend(parent, 3)
        self.daemon.wait_state(child, "QUEUED")
        self.daemon.restart()
        refused = self.daemon.run("delete", parent, code=1).stderr
        self.assertIn("what a job that has not ended goes on from", refused)
        self.daemon.run("cancel", busy)
        self.check(child, [11, 12, 13])
        self.daemon.run("delete", parent)

    # The adapter of one has the other for its base.
    def test_one_that_waits_keeps_all_of_its_assignment_over_a_restart(self):
        parent = self.ended()
        busy = self.daemon.submit_script("steps=100000 step_ms=50")
        self.daemon.wait_state(busy, "RUNNING")
        key = f"lora.init_adapter={parent}/checkpoints/5"
        names = [self.daemon.submit_script("steps=1", key) for _ in range(2)]
        for name in names:
            self.daemon.wait_state(name, "QUEUED")
        self.daemon.restart()
        third = self.daemon.submit_script("steps=1", key)  # It knows no restart.
        self.daemon.wait_state(third, "QUEUED")
        self.daemon.run("cancel", busy)
        told = []
        for name in (*names, third):
            self.daemon.wait_state(name, "SUCCEEDED")
            text = assignments.read(self.daemon.attempt(name)).replace(name, "NAME")
            told.append(re.sub(r"(?m)^(nonce|link_socket): .*$", "", text))
        self.assertIn(f"{parent}/checkpoints/", assignments.field(told[0], "start_from"))
        self.assertIn("opened {", told[0])
        self.assertEqual(told[0], told[2])
        self.assertEqual(told[1], told[2])

    def test_what_another_began_with_is_deleted_after_it(self):
        first = self.daemon.submit_script("steps=2", "method=full")
        self.daemon.wait_state(first, "SUCCEEDED")
        second = self.daemon.submit_script("steps=2", f"model={first}")
        self.daemon.wait_state(second, "SUCCEEDED")
        refused = self.daemon.run("delete", first, code=1).stderr
        self.assertIn(f'it is what job "{second}" began with', refused)
        self.daemon.run("delete", second, first)

    def test_one_that_is_paused_goes_on(self):
        parent = self.ended("step_ms=100")
        child = self.extend(parent, 30)
        self.daemon.wait_step(child, 12)
        self.daemon.run("pause", child)
        self.daemon.wait_state(child, "PAUSED")
        self.daemon.restart()
        self.daemon.run("resume", child)
        self.check(child, list(range(11, 41)), epoch=2)

    def test_what_cannot_be_extended_is_refused_by_name(self):
        busy = self.daemon.submit_script("steps=100000 step_ms=50")
        self.daemon.wait_step(busy, 6)
        self.assertIn("it is RUNNING", self.refusal(busy))
        self.daemon.run("cancel", busy)
        self.daemon.wait_state(busy, "CANCELLED")
        short = self.ended(steps=3)
        self.assertIn("has no checkpoint to go on from", self.refusal(short))
        self.assertIn("steps: 999999999 is outside", self.refusal(busy, 999999999))

    def test_a_checkpoint_that_is_damaged_or_gone_fails_the_new_job(self):
        parent = self.ended()
        folder = self.daemon.state / "jobs" / parent / "checkpoints" / "step-000010.e1"
        (folder / "weights").write_text("something else")
        job = self.daemon.wait_state(self.extend(parent, 3), "FAILED")
        self.assertEqual(job["error"]["reason"], "CHECKPOINTS_DAMAGED")
        self.assertIn("step-000010.e1/weights", job["error"]["message"])
        shutil.rmtree(folder.parent)
        self.assertIn("has no checkpoint to go on from", self.refusal(parent))


if __name__ == "__main__":
    unittest.main()
