"""How long snug-prepare takes for many rows, and how much memory: conversations of about 120
tokens, rendered by a chat template.

    python -m tests.bench.prepare_rows [--rows 200000] [--form chat|pairs]

Prints seconds, rows per second and the largest process's memory. Its words and its tokenizer are
made here, from a seed.
"""

import argparse
import json
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.harness.binaries import ROOT

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
VOCABULARY = 8000
ASKED_WORDS, ANSWER_WORDS = 30, 60


class Words:
    """Sentences of words that are drawn once."""

    def __init__(self, seed):
        self._random = random.Random(seed)
        letters = "etaoinshrdlucmfw"
        draw = self._random
        self._words = [
            "".join(draw.choice(letters) for _ in range(draw.randint(2, 9))) for _ in range(4000)
        ]

    def sentence(self, words):
        return " ".join(self._random.choice(self._words) for _ in range(words)).capitalize() + "."


def write_model(folder, words):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((words.sentence(ANSWER_WORDS) for _ in range(2000)), trainer)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"vocab_size": tokenizer.get_vocab_size(), "eos_token_id": 3}
    (folder / "config.json").write_text(json.dumps(config))
    names = {"eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))


def write_rows(path, words, rows, form):
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(rows):
            asked, answer = words.sentence(ASKED_WORDS), words.sentence(ANSWER_WORDS)
            row = {"prompt": asked, "completion": " " + answer}
            if form == "chat":
                turns = (("user", asked), ("assistant", answer))
                row = {"messages": [{"role": role, "content": text} for role, text in turns]}
            file.write(json.dumps(row) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--form", choices=("chat", "pairs"), default="chat")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, words = pathlib.Path(name), Words(1)
        write_model(folder / "model", words)
        write_rows(folder / "rows.jsonl", words, options.rows, options.form)
        script = ROOT / "worker" / "prepare" / "snug_prepare.py"
        line = [sys.executable, "-B", script, "--model", folder / "model", "--dataset"]
        line += [folder / "rows.jsonl", "--output", folder / "out", "--max-seq-length", "2048"]
        began = time.monotonic()
        subprocess.run(list(map(str, line)), check=True, stderr=subprocess.DEVNULL)
        seconds = time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, memory = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    pace = f"{seconds:.1f} s, {options.rows / seconds:.0f} rows/s, {cpu:.1f} s of CPU"
    print(f"{options.rows} rows ({options.form}): {pace}, {memory:.0f} MiB in the largest process")


if __name__ == "__main__":
    main()
