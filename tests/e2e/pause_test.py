"""A job that is paused at random moments, and resumed: its weights, losses and evaluations are
those of a run that nobody disturbs."""

import unittest

from tests.fault import runs
from tests.harness import metric_readers
from tests.harness.daemon import Daemon, evaluation_lines, metric_lines

STEPS = 120


class PauseTest(unittest.TestCase):
    def setUp(self):
        self.random = runs.seeded_random()
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)

    def check(self, job):
        """Twice paused, it ends in its third attempt as the undisturbed one."""
        undisturbed = runs.Undisturbed(self.daemon, job, STEPS)
        name = self.daemon.submit(*job)
        for step in (1, STEPS // 2):
            self.daemon.pause(name, step + self.random.randrange(STEPS // 4))
            self.assertEqual(self.daemon.processes("snug-worker"), [])
            self.daemon.run("resume", name)
        undisturbed.check(self, self.daemon, name, epoch=3)
        return name

    def test_a_full_job(self):
        self.check(runs.full_job(self.daemon.folder / "full", STEPS))

    def test_a_lora_job_with_dropout_and_evaluations(self):
        job = runs.lora_job(self.daemon.folder / "lora", STEPS, "bf16")
        name = self.check((*job, "training.report_to=tensorboard"))
        self.check_events(self.daemon.folder / f"download-{name}")

    def check_events(self, output):
        """TensorBoard's reader finds what metrics.jsonl says, each step once, over all attempts."""
        events = [path.name for path in output.glob("*tfevents*")]
        self.assertEqual(events, ["events.out.tfevents.snug"])
        lines = metric_lines(output / "metrics.jsonl")
        found = metric_readers.tensorboard(output)
        keys = set(lines[0]) - {"global_step", "time"}
        evaluations = evaluation_lines(output / "metrics.jsonl")
        eval_keys = set(evaluations[0]) - {"global_step", "time", "epoch"}
        series = {f"train/{key}": (lines, key) for key in keys}
        series |= {f"eval/{key.removeprefix('eval_')}": (evaluations, key) for key in eval_keys}
        self.assertEqual(sorted(found), sorted(series))
        for tag, (wanted, key) in series.items():
            self.assertGreater(len(wanted), 1)
            places = [(one["global_step"], one["time"]) for one in wanted]
            self.assertEqual([(step, seconds) for step, seconds, _ in found[tag]], places)
            for line, (_, _, value) in zip(wanted, found[tag]):
                self.assertAlmostEqual(value, line[key], delta=abs(line[key]) * 1e-6, msg=tag)


if __name__ == "__main__":
    unittest.main()
