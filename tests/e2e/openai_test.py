"""OpenAI's client against a daemon whose worker trains: a file of conversations is uploaded, a job
made of it and waited for, and the adapter that it made knows held-out conversations better than the
base. tests/server/openai_test.py has the rest of that API."""

import contextlib
import io
import json
import pathlib
import re
import shutil
import tempfile
import time
import unittest

import openai
import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.harness import datasets, jobs
from tests.harness.binaries import ROOT
from tests.harness.daemon import WAIT_S, Daemon

TEMPLATE = (
    "{% for m in messages %}{{ m.role + ' ' }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content + eos_token }}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}"
)


def conversations(seed, count):
    """The toy pairs as that API's rows of messages."""
    return "".join(
        json.dumps(
            {
                "messages": [
                    {"role": "user", "content": pair["prompt"]},
                    {"role": "assistant", "content": pair["completion"]},
                ]
            }
        )
        + "\n"
        for pair in datasets.sentences(seed, count)
    )


class OpenAiTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="snug-openai-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        jobs.write_model_folder(self.folder / "model")
        (self.folder / "model" / "chat_template.jinja").write_text(TEMPLATE)
        settings = self.folder / "snugd.yaml"
        settings.write_text(f"tenants:\n  - {{name: blue, roots: ['{self.folder}']}}\n")
        self.daemon = Daemon(flags=["--config", str(settings)])
        self.addCleanup(self.daemon.close)
        token = self.daemon.json("token", "create", "--tenant", "blue", "--role", "user")["secret"]
        port = self.daemon.json("open")["url"].split(":")[2].split("/")[0]
        url = f"http://127.0.0.1:{port}/v1"
        self.client = openai.OpenAI(base_url=url, api_key=token, max_retries=0, timeout=60)
        self.page_says = {
            "http://127.0.0.1:9464/v1": url,
            "api_key=TOKEN": f'api_key="{token}"',
            "/models/llama": str(self.folder / "model"),
            "train.jsonl": str(self.folder / "train.jsonl"),
        }

    def upload(self, name, text):
        return self.client.files.create(file=(name, text.encode()), purpose="fine-tune").id

    def succeeded(self, job):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            now = self.client.fine_tuning.jobs.retrieve(job.id)
            if now.status in ("succeeded", "failed", "cancelled"):
                self.assertEqual(now.status, "succeeded", now.error)
                return now
            time.sleep(0.2)
        self.fail(f"still {now.status} after {WAIT_S:.0f} s")

    def losses(self, model, texts, tokenizer):
        """The mean loss of each text."""
        with torch.no_grad():
            ids = (tokenizer(text, return_tensors="pt").input_ids for text in texts)
            return [model(input_ids=each, labels=each).loss.item() for each in ids]

    def test_from_a_file_of_conversations_to_an_adapter(self):
        numbers = {"n_epochs": 3, "batch_size": 8, "learning_rate_multiplier": 10}
        job = self.client.fine_tuning.jobs.create(
            model=str(self.folder / "model"),
            training_file=self.upload("train.jsonl", conversations(1, 96)),
            validation_file=self.upload("valid.jsonl", conversations(2, 16)),
            method={"type": "supervised", "supervised": {"hyperparameters": numbers}},
            seed=5,
        )
        done = self.succeeded(job)
        self.assertGreater(done.trained_tokens or 0, 0)
        events = self.client.fine_tuning.jobs.list_events(job.id, limit=100).data
        steps = [event.data for event in events if event.type == "metrics"]
        self.assertEqual(max(step["step"] for step in steps), 3 * 96 / 8)

        self.daemon.run("download", done.fine_tuned_model, self.folder / "adapter")
        tokenizer = AutoTokenizer.from_pretrained(self.folder / "adapter")
        base = AutoModelForCausalLM.from_pretrained(self.folder / "model", dtype=torch.float32)
        tuned = AutoPeftModelForCausalLM.from_pretrained(
            self.folder / "adapter", dtype=torch.float32
        )
        held_out = [
            tokenizer.apply_chat_template(json.loads(row)["messages"], tokenize=False)
            for row in conversations(3, 8).splitlines()
        ]
        before = self.losses(base.eval(), held_out, tokenizer)
        after = self.losses(tuned.eval(), held_out, tokenizer)
        for untrained, trained in zip(before, after):
            self.assertLess(trained, untrained)

    def test_the_example_of_the_page(self):
        page = (ROOT / "docs/openai.md").read_text(encoding="utf-8")
        (example,) = re.findall(r"(?s)```python\n(.*?)```", page)
        for there, here in self.page_says.items():
            self.assertIn(there, example)
            example = example.replace(there, here)
        (self.folder / "train.jsonl").write_text(conversations(1, 32), encoding="utf-8")
        names, printed = {}, io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(example, names)  # pylint: disable=exec-used
        job = names["job"]
        self.assertIn(f"Created fine-tuning job: {job.id}", printed.getvalue())
        self.client.fine_tuning.jobs.cancel(job.id)


if __name__ == "__main__":
    unittest.main()
