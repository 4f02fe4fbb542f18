"""What a job's model answers when it is asked: the tokens that transformers and peft generate, from
a worker that has a reservation of its own."""

import json
import os
import signal
import subprocess
import unittest

import torch
from transformers import AutoTokenizer

from tests.harness import jobs, models
from tests.harness.binaries import binary
from tests.harness.daemon import Daemon, wait_for

PROMPTS = ["red green blue = ", "stone", "caf\u00e9 \u4e2d = "]
NEW_TOKENS = 40
CHANGES = ("precision=fp32", "max_steps=30", "learning_rate=0.02", "save_steps=30")
TEMPLATE = (
    "{% for m in messages %}{{ '<s>' + m.role + ' ' + m.content + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant ' }}{% endif %}"
)


class SampleTest(unittest.TestCase):
    """A LoRA job that has changed its model by much; its model has a chat template."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.folder = cls.daemon.folder / "lora"
        file = jobs.lora_folder(cls.folder)
        (cls.folder / "model" / "chat_template.jinja").write_text(TEMPLATE)
        (cls.folder / "prompts.txt").write_text("\n".join(PROMPTS), encoding="utf-8")
        cls.name = cls.daemon.submit(file, *CHANGES)
        cls.daemon.wait_state(cls.name, "SUCCEEDED")
        cls.output = cls.daemon.folder / "output"
        cls.daemon.run("download", cls.name, cls.output)
        cls.tokenizer = AutoTokenizer.from_pretrained(cls.folder / "model")

    def sample(self, *options):
        """What `snug sample` says as JSON; its worker kept to its reservation, which is gone."""
        words = ("--prompts", self.folder / "prompts.txt", "--max-new-tokens", NEW_TOKENS)
        said = self.daemon.json("sample", self.name, *words, *options)
        measured, reserved = int(said["measured_peak_bytes"]), int(said["reserved_bytes"])
        self.assertGreater(measured, reserved // 2)
        self.assertLessEqual(measured, reserved)
        self.nothing_is_left()
        return said["answers"]

    def nothing_is_left(self):
        wait_for(self.is_idle, "the worker that answered to be gone")

    def is_idle(self):
        (device,) = self.daemon.json("devices")["devices"]
        files = [path.name for path in (self.daemon.state / "sampling").rglob("*")]
        promised = device["reserved_bytes"] != "0"
        return not promised and files == ["jobs"] and not self.daemon.processes("snug-worker")

    def generated(self, ids, adapter=None):
        """What transformers generates behind these tokens, with the adapter where there is one."""
        model = models.load_model(self.folder / "model", torch.float32, adapter).eval()
        given = model.generate(
            input_ids=torch.tensor([ids]), max_new_tokens=NEW_TOKENS, do_sample=False
        )
        return given[0, len(ids) :].tolist()

    def check(self, answers, adapter):
        self.assertEqual([answer["prompt"] for answer in answers], PROMPTS)
        for answer in answers:
            tokens = self.generated(self.tokenizer(answer["prompt"])["input_ids"], adapter)
            self.assertEqual(answer["tokens"], tokens)
            text = self.tokenizer.decode(tokens, skip_special_tokens=True)
            self.assertEqual(answer["answer"], text)
            stopped = tokens[-1] == self.tokenizer.eos_token_id
            self.assertEqual(answer["finish_reason"], "STOP" if stopped else "LENGTH")

    def test_greedy_answers_are_those_of_peft(self):
        tuned = self.sample()
        self.check(tuned, self.output)
        base = self.sample("--base")
        self.check(base, None)
        self.assertNotEqual(tuned, base)
        self.assertEqual(self.sample("--checkpoint", "30"), tuned)

    def test_draws_repeat_with_the_seed_and_change_with_it(self):
        drawn = ("--temperature", "1.5", "--top-p", "0.95", "--seed")
        first = self.sample(*drawn, "1")
        self.assertEqual(self.sample(*drawn, "1"), first)
        self.assertNotEqual(self.sample(*drawn, "2"), first)

    def chat(self, text, *options):
        """What `snug chat` prints for lines on standard input."""
        line = [str(binary("snug")), "--server", f"unix:{self.daemon.socket}", "chat", self.name]
        line += ["--max-new-tokens", str(NEW_TOKENS), "--output", "json", *options]
        done = subprocess.run(
            line, input=text, capture_output=True, encoding="utf-8", check=True, timeout=120
        )
        return [json.loads(said)["answer"] for said in done.stdout.splitlines()]

    def test_a_chat_of_two_turns_goes_through_the_template(self):
        answers = self.chat("red green\nblue\n/quit\nnever said\n", "--system", "be brief")
        self.assertEqual(len(answers), 2)
        messages = [{"role": "system", "content": "be brief"}]
        for said, answer in zip(("red green", "blue"), answers):
            messages.append({"role": "user", "content": said})
            text = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            tokens = self.generated(ids, self.output)
            self.assertEqual(answer, self.tokenizer.decode(tokens, skip_special_tokens=True))
            messages.append({"role": "assistant", "content": answer})
        self.nothing_is_left()

    def asking(self):
        """A client that is being answered for long, and its worker's process."""
        (self.folder / "many.txt").write_text("stone\n" * 500)
        line = [str(binary("snug")), "--server", f"unix:{self.daemon.socket}", "sample", self.name]
        line += ["--prompts", str(self.folder / "many.txt"), "--max-new-tokens", "400"]
        line += ["--temperature", "10", "--output", "json"]
        client = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
        )
        self.addCleanup(client.communicate)
        self.addCleanup(client.kill)
        (worker,) = wait_for(lambda: self.daemon.processes("snug-worker"), "a worker that answers")
        return client, worker

    def test_a_worker_that_dies_ends_its_stream_alone(self):
        client, worker = self.asking()
        os.kill(worker, signal.SIGKILL)
        _, said = client.communicate(timeout=60)
        self.assertEqual(client.returncode, 1)
        error = json.loads(said)["error"]
        self.assertEqual(error["reason"], "ANSWERING_FAILED")
        self.assertIn("the worker has failed", error["message"])
        self.nothing_is_left()
        self.assertEqual(self.daemon.job(self.name)["state"], "SUCCEEDED")

    def test_a_client_that_goes_away_ends_its_worker(self):
        client, _ = self.asking()
        client.kill()
        self.nothing_is_left()

    def test_a_daemon_that_is_killed_leaves_no_worker(self):
        self.asking()
        self.daemon.restart()
        self.nothing_is_left()

    def test_what_cannot_be_asked_is_refused(self):
        words = ("sample", self.name, "--prompts", self.folder / "prompts.txt")
        for options, says in (
            (("--checkpoint", "7"), "no checkpoint of step 7"),
            (("--max-new-tokens", "32768"), "the model is made for"),
            (("--checkpoint", "30", "--base"), "a checkpoint is none of the model"),
        ):
            done = self.daemon.run(*words, *options, code=1)
            self.assertIn(says, done.stderr)
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
