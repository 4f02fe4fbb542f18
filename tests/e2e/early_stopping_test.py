"""Early stopping and the best evaluation, against transformers' callback fed with the job's own
evaluations."""

import types
import unittest

import torch
from transformers import EarlyStoppingCallback, Trainer, TrainerControl, TrainerState

from tests.e2e.oracle import mean_loss, rows_of
from tests.harness import jobs, models
from tests.harness.daemon import Daemon, evaluation_lines, metric_lines

STEPS = 40
# Random tokens: what is learned of some rows soon makes others less likely.
CHANGES = (
    f"max_steps={STEPS}",
    "learning_rate=0.02",
    "eval_split=0.3",
    "eval_steps=1",
    "load_best_model_at_end=true",
)


def watched(lines, metric, greater, patience, threshold):
    """(evaluations until transformers stops, the step it thinks best)."""
    arguments = types.SimpleNamespace(
        metric_for_best_model=metric, greater_is_better=greater, save_strategy="steps"
    )
    state, control = TrainerState(), TrainerControl()
    callback = EarlyStoppingCallback(patience, threshold)
    trainer = types.SimpleNamespace(args=arguments, state=state)
    for seen, line in enumerate(lines, start=1):
        state.global_step = line["global_step"]
        callback.on_evaluate(arguments, state, control, line)
        Trainer._determine_best_metric(trainer, line, None)  # pylint: disable=protected-access
        if control.should_training_stop:
            return seen, state.best_global_step
    return None, state.best_global_step


class EarlyStoppingTest(unittest.TestCase):
    """One daemon and one folder; a metric that falls and one that rises."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.file = jobs.full_folder(cls.daemon.folder / "full")

    def check(self, metric, patience, threshold):
        """The job stops where transformers would have, and exports what it thinks best."""
        name = self.daemon.submit(
            self.file,
            *CHANGES,
            f"metric_for_best_model={metric}",
            f"early_stopping_patience={patience}",
            f"early_stopping_threshold={threshold}",
        )
        self.daemon.wait_state(name, "SUCCEEDED")
        output = self.daemon.folder / f"download-{name}"
        self.daemon.run("download", name, output)
        lines = evaluation_lines(output / "metrics.jsonl")
        last = metric_lines(output / "metrics.jsonl")[-1]["global_step"]
        self.assertLess(last, STEPS)
        stopped, best = watched(lines, metric, metric != "eval_loss", patience, threshold)
        self.assertEqual(stopped, len(lines))
        self.assertEqual(lines[-1]["global_step"], last)
        self.assertLess(best, last)
        _, held_out = rows_of(self.daemon, name)
        loss = mean_loss(models.load_model(output, torch.float32), held_out)
        self.assertAlmostEqual(lines[best - 1]["eval_loss"], loss, delta=1e-5 * loss)
        return last

    def test_a_loss_that_rises_ends_the_job(self):
        self.check("eval_loss", 3, 0.0)

    def test_a_step_below_the_threshold_is_waited_for(self):
        self.assertNotEqual(self.check("eval_loss", 2, 0.05), self.check("eval_loss", 2, 0.0))

    def test_an_accuracy_that_does_not_rise_ends_the_job(self):
        self.check("eval_mean_token_accuracy", 2, 0.0)


if __name__ == "__main__":
    unittest.main()
