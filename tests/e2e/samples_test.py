"""What a job answers to its prompts at evaluations: the tokens that transformers generates."""

import json
import re
import unittest

import torch
from transformers import AutoTokenizer

from tests.harness import jobs, models
from tests.harness.daemon import Daemon, Failed

PROMPTS = ["red green blue = ", "stone", "caf\u00e9 \u4e2d = "]
CHANGES = ("eval_split=0.2", "eval_steps=2", "max_steps=5", "max_seq_length=256")
NEW_TOKENS = 40


class SamplesTest(unittest.TestCase):
    """Full fine-tuning, so that the exported model is what answered last."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.file = jobs.full_folder(cls.daemon.folder / "full")
        cls.file.with_name("prompts.txt").write_text("\n".join(PROMPTS), encoding="utf-8")

    def finish(self, *changes):
        """The lines of samples.jsonl, the attempt's folder, the output."""
        name = self.daemon.submit(self.file, *CHANGES, *changes)
        job = self.daemon.wait_state(name, "SUCCEEDED")
        output = self.daemon.folder / f"download-{name}"
        self.daemon.run("download", name, output)
        attempt = self.daemon.attempt(name)
        text = (attempt / "samples.jsonl").read_text(encoding="utf-8")
        self.assertEqual((output / "samples.jsonl").read_text(encoding="utf-8"), text)
        predicted = int(job["memory"]["predicted_peak_bytes"])
        self.assertLessEqual(int(job["memory"]["measured_peak_bytes"]), predicted)
        return [json.loads(line) for line in text.splitlines()], name, output

    def test_greedy_answers_are_those_of_transformers(self):
        lines, name, output = self.finish(
            "sample_prompts=prompts.txt", f"max_new_tokens={NEW_TOKENS}"
        )
        self.assertEqual([line["step"] for line in lines], [2, 2, 2, 4, 4, 4, 5, 5, 5])
        self.assertEqual([line["prompt"] for line in lines], PROMPTS * 3)
        tokenizer = AutoTokenizer.from_pretrained(output)
        model = models.load_model(output, torch.float32).eval()
        for line in lines[-3:]:
            ids = torch.tensor([tokenizer(line["prompt"])["input_ids"]])
            given = model.generate(ids, max_new_tokens=NEW_TOKENS, do_sample=False, use_cache=True)
            tokens = given[0, ids.shape[1] :].tolist()
            self.assertEqual(line["tokens"], tokens)
            text = tokenizer.decode(tokens, skip_special_tokens=True)
            self.assertEqual(line["completion"], text)
        answers = [line["tokens"] for line in lines]
        self.assertNotEqual(answers[:3], answers[6:])
        log = self.daemon.run("logs", name).stdout
        self.assertIn('sample after step 5: "stone" -> ', log)
        time = r"(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ "
        self.assertRegex(log, time + r"step 5 of 5: loss [\d.]+, gradient norm ")
        self.assertEqual(re.findall(time + r"evaluation after step (\d): eval_loss [\d.]+, eval_",
                                    log), ["2", "4", "5"])

    def test_with_a_chat_template_a_prompt_is_what_a_user_says(self):
        template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
        self.file.with_name("chat.jinja").write_text(template)
        lines, _, output = self.finish(
            "sample_prompts=[stone]", "chat_template=chat.jinja", f"max_new_tokens={NEW_TOKENS}"
        )
        self.assertEqual({line["prompt"] for line in lines}, {"stone"})
        tokenizer = AutoTokenizer.from_pretrained(output)
        asked = tokenizer("user: stone\nassistant:", add_special_tokens=False)["input_ids"]
        model = models.load_model(output, torch.float32).eval()
        given = model.generate(torch.tensor([asked]), max_new_tokens=NEW_TOKENS, do_sample=False)
        self.assertEqual(lines[-1]["tokens"], given[0, len(asked) :].tolist())

    def test_draws_repeat_with_the_seed_and_change_with_it(self):
        drawn = ["sample_prompts=[stone]", "sample_temperature=1.5", "sample_top_p=0.95"]
        first, _, _ = self.finish(*drawn)
        again, _, _ = self.finish(*drawn)
        self.assertEqual(first, again)
        greedy, _, _ = self.finish("sample_prompts=[stone]")
        self.assertNotEqual(first[0]["tokens"], greedy[0]["tokens"])
        self.assertNotEqual(first[0]["tokens"], first[1]["tokens"])

    def test_a_prompt_that_is_too_long_fails_the_job_by_name(self):
        name = self.daemon.submit(self.file, *CHANGES, f"sample_prompts=[{'red ' * 300}]")
        job = self.daemon.wait_state(name, "FAILED")
        self.assertEqual(job["error"]["field"], "training.sample_prompts")
        self.assertIn("at most 192", job["error"]["message"])

    def test_prompts_need_evaluations(self):
        with self.assertRaises(Failed) as caught:
            self.daemon.run("submit", self.file, "sample_prompts=[stone]")
        self.assertIn("training.sample_prompts", caught.exception.done.stderr)


if __name__ == "__main__":
    unittest.main()
