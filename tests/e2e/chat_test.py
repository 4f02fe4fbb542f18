"""A job on conversations: preview, submit, what is shown of the dataset, and the template that
comes back with the adapter."""

import json
import pathlib
import tempfile
import unittest

from transformers import AutoTokenizer

from tests.harness import datasets, jobs
from tests.harness.daemon import Daemon

TEMPLATE = (
    "{% for m in messages %}{{ '<s>' + m.role + ' ' }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content + eos_token }}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}"
)


class ChatTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        folder = tempfile.TemporaryDirectory(prefix="snug-chat-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = jobs.lora_folder(self.folder)
        for name in ("train.jsonl", "eval.jsonl"):
            self.write_conversations(name)
        (self.folder / "chat.jinja").write_text(TEMPLATE)

    def write_conversations(self, name):
        """The toy pairs as conversations of two turns; one of the answers is not trained."""
        pairs = datasets.sentences(5, 60)
        with open(self.folder / name, "w", encoding="utf-8") as file:
            for first, second in zip(pairs[::2], pairs[1::2]):
                messages = [
                    {"role": "user", "content": first["prompt"]},
                    {"role": "assistant", "content": first["completion"], "weight": 0},
                    {"role": "user", "content": second["prompt"]},
                    {"role": "assistant", "content": second["completion"]},
                ]
                file.write(json.dumps({"messages": messages}) + "\n")

    def test_from_preview_to_adapter(self):
        options = ("--model", "./model", "--rows", "1", "--chat-template", "chat.jinja")
        preview = self.daemon.json("datasets", "preview", "train.jsonl", *options, cwd=self.folder)
        trained = [s["text"] for s in preview["rows"][0]["segments"] if s["weight"]]
        messages = json.loads((self.folder / "train.jsonl").read_text().splitlines()[0])["messages"]
        # The space before an answer is part of its first token.
        self.assertEqual(trained, [" " + messages[3]["content"] + "</s>"])

        name = self.daemon.submit(self.file, "chat_template=chat.jinja", "training.max_steps=2")
        job = self.daemon.wait_state(name, "SUCCEEDED")
        summary = job["dataset"]
        self.assertEqual(summary["format"], "messages")
        self.assertEqual(summary["rows"], "30")
        self.assertEqual(summary["rows_without_stop_token"], "0")
        self.assertEqual((summary["end_of_turn"], summary["end_of_turn_is_stop"]), ("</s>", True))
        shown = self.daemon.run("get", name).stdout
        self.assertIn("format     messages, chat template of the job", shown)

        # What the user downloads renders a conversation as the job was trained.
        self.daemon.run("download", name, self.folder / "adapter")
        tokenizer = AutoTokenizer.from_pretrained(self.folder / "adapter")
        self.assertEqual(tokenizer.chat_template, TEMPLATE)
        ids = tokenizer.apply_chat_template(messages)["input_ids"]
        prepared = next((self.daemon.state / "datasets").glob("*/dataset.safetensors")).parent
        rows = datasets.read_prepared(prepared)
        self.assertIn(ids, [list(row) for row, _ in rows])

    # A file that the job's model cannot render: the submit is refused by the row; unchecked, the
    # job fails by it. Nothing runs.
    def test_a_model_without_a_template(self):
        done = self.daemon.run("submit", self.file, "--output", "json", code=1)
        name = self.daemon.submit(self.file, "--no-check")
        job = self.daemon.wait_state(name, "FAILED")
        for error in (json.loads(done.stderr)["error"], job["error"]):
            self.assertEqual(error["reason"], "NO_CHAT_TEMPLATE")
            self.assertIn("give chat_template", error["message"])


if __name__ == "__main__":
    unittest.main()
