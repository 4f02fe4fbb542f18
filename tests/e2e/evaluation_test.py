"""Rows held out by eval_split: which they are, when the loss over them is told, and that it is
theirs."""

import json
import unittest

import torch

from tests.e2e.oracle import mean_loss, rows_of
from tests.harness import jobs, models
from tests.harness.daemon import Daemon, evaluation_lines, metric_lines

SPLIT = ("eval_split=0.2", "training.eval_steps=2")
ROWS, HELD_OUT = 40, 8
EVALUATION = {
    *("eval_loss", "eval_mean_token_accuracy", "eval_entropy", "eval_runtime"),
    *("global_step", "epoch", "time"),
}


class EvaluationTest(unittest.TestCase):
    """full.yaml has a constant learning rate: a shorter job is the beginning of a longer one."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        lengths = range(20, 20 + 2 * ROWS, 2)
        cls.file = jobs.full_folder(cls.daemon.folder / "full", lengths=lengths)

    def finish(self, *changes):
        """The ended job and its downloaded folder."""
        name = self.daemon.submit(self.file, *SPLIT, *changes)
        job = self.daemon.wait_state(name, "SUCCEEDED")
        output = self.daemon.folder / f"download-{name}"
        self.daemon.run("download", name, output)
        return job, output

    def loss_by_transformers(self, job, output):
        """Of the exported model, over the rows that were held out."""
        _, held_out = rows_of(self.daemon, job["id"])
        return mean_loss(models.load_model(output, torch.float32), held_out)

    def tokens_by_transformers(self, job, output):
        """(accuracy, entropy) of the exported model over the trained tokens held out."""
        _, held_out = rows_of(self.daemon, job["id"])
        model = models.load_model(output, torch.float32).eval()
        right, entropies = [], []
        for ids, weights in held_out:
            ids = torch.tensor(ids)
            with torch.no_grad():
                logits = model(input_ids=ids[None]).logits[0, :-1].double()
            trained = torch.tensor(weights[1:]) > 0
            right += (logits.argmax(-1) == ids[1:])[trained].tolist()
            distribution = torch.distributions.Categorical(logits=logits[trained])
            entropies += distribution.entropy().tolist()
        return sum(right) / len(right), sum(entropies) / len(entropies)

    def test_lines_follow_eval_steps_and_tell_the_loss_of_the_held_out_rows(self):
        job, output = self.finish("training.max_steps=5")
        lines = evaluation_lines(output / "metrics.jsonl")
        self.assertEqual([line["global_step"] for line in lines], [2, 4, 5])
        steps = metric_lines(output / "metrics.jsonl")
        self.assertEqual([line["global_step"] for line in steps], [1, 2, 3, 4, 5])
        for line in lines:
            self.assertEqual(set(line), EVALUATION)
            self.assertGreater(line["eval_runtime"], 0.0)
            self.assertEqual(line["epoch"], steps[line["global_step"] - 1]["epoch"])
        self.assertEqual(job["progress"]["eval_loss"], lines[-1]["eval_loss"])
        expected = self.loss_by_transformers(job, output)
        self.assertAlmostEqual(lines[-1]["eval_loss"], expected, delta=1e-5 * expected)

        accuracy, entropy = self.tokens_by_transformers(job, output)
        self.assertEqual(lines[-1]["eval_mean_token_accuracy"], accuracy)
        self.assertAlmostEqual(lines[-1]["eval_entropy"], entropy, delta=1e-5 * entropy)

        shorter = self.finish("training.max_steps=2")
        expected = self.loss_by_transformers(*shorter)
        self.assertAlmostEqual(lines[0]["eval_loss"], expected, delta=1e-5 * expected)
        self.assertGreater(abs(lines[0]["eval_loss"] - lines[-1]["eval_loss"]), 1e-3 * expected)

    def test_a_share_of_the_rows_is_held_out_by_the_seed_and_never_trained(self):
        lines = (self.file.parent / "train.jsonl").read_text().splitlines()
        every = {tuple(json.loads(line)["input_ids"]) for line in lines}
        self.assertEqual(len(every), ROWS)
        chosen = []
        for seed in (7, 8):
            job, _ = self.finish(f"training.seed={seed}", "training.max_steps=1")
            given = rows_of(self.daemon, job["id"])
            train, held_out = ({tuple(ids) for ids, _ in rows} for rows in given)
            self.assertEqual(len(held_out), HELD_OUT)
            self.assertEqual(train, every - held_out)
            self.assertEqual(job["dataset"]["rows"], str(ROWS - HELD_OUT))
            self.assertEqual(job["dataset"]["eval_rows"], str(HELD_OUT))
            chosen.append(held_out)
        self.assertNotEqual(*chosen)


if __name__ == "__main__":
    unittest.main()
