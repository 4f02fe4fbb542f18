"""Makes what the job files of this folder need: a tiny Llama with random weights and a chat
template, and small datasets in several forms.

    .venv/bin/python examples/make.py

Writes model/ and data/ beside this file, in seconds. The language is a toy one: words, and the same
words backwards.
"""

import gzip
import json
import pathlib
import random

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).resolve().parent
WORDS = "red green blue small large old new cat dog bird house tree river runs sleeps sings".split()
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def pairs(seed, count):
    draw = random.Random(seed)
    for _ in range(count):
        words = draw.choices(WORDS, k=draw.randint(2, 6))
        yield " ".join(words), " ".join(reversed(words))


def write_model(folder):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (f"{asked} {answer}" for asked, answer in pairs(0, 500))
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        eos_token_id=fast.eos_token_id,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def write_lines(path, rows):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")


def chat(asked, answer):
    turns = (("user", asked), ("assistant", answer))
    return {"messages": [{"role": role, "content": text} for role, text in turns]}


def write_data(folder):
    (folder / "shards").mkdir(parents=True, exist_ok=True)
    rows = [{"prompt": asked, "completion": " " + answer} for asked, answer in pairs(1, 120)]
    write_lines(folder / "pairs.jsonl", rows)
    write_lines(folder / "held-out.jsonl", rows[:20])
    for shard in range(2):
        name = f"part-{shard}.jsonl.gz"
        write_lines(folder / "shards" / name, (chat(*pair) for pair in pairs(2 + shard, 60)))
    questions = ({"question": asked, "answer": " " + answer} for asked, answer in pairs(4, 60))
    write_lines(folder / "questions.jsonl", questions)
    write_lines(folder / "text.jsonl", ({"text": f"{a} {b}"} for a, b in pairs(5, 60)))


if __name__ == "__main__":
    write_model(HERE / "model")
    write_data(HERE / "data")
