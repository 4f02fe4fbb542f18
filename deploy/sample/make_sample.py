"""Makes what the quickstart trains on: two datasets, a tokenizer, and a model that knows nothing
yet.

    python make_sample.py --output DIR --rows N

From the packages of this machine (packages.py), into DIR:
  summaries.jsonl, summaries-eval.jsonl   a package's name -> its summary        (the full job)
  sections.jsonl, sections-eval.jsonl     name and summary -> its section        (the LoRA job)
  model/                                  Llama, 7 million parameters, random; 4096 tokens
  full.yaml, lora.yaml                    the job files, as they lie beside this script
  sample.json                             {"rows": N}
The same machine gives the same bytes. The folder is written aside and renamed.
"""

import argparse
import json
import os
import shutil

from packages import read_packages
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 4096
END = "<|end|>"
EVAL_ROWS = 128
SEED = 1
JOB_FILES = ("full.yaml", "lora.yaml")


def summary_row(package):
    return {"prompt": f"Package: {package.name}\nSummary:", "completion": f" {package.summary}"}


def section_row(package):
    prompt = f"Package: {package.name}\nSummary: {package.summary}\nSection:"
    return {"prompt": prompt, "completion": f" {package.section}"}


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def train_tokenizer(rows):
    """Byte-level BPE: every text has a spelling, so there is no unknown token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = (row["prompt"] + row["completion"] for row in rows)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def write_model(directory, tokenizer):
    """As transformers itself writes a model: config.json, weights in fp32, tokenizer files."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.token_to_id(END),
        pad_token_id=None,
    )
    torch.manual_seed(SEED)
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(directory)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END)
    fast.save_pretrained(directory)


def make_sample(directory, max_rows):
    packages = read_packages()
    held_out = packages[: min(EVAL_ROWS, len(packages) // 10, max(1, max_rows // 4))]
    trained = packages[len(held_out) :][:max_rows]
    for name, row in (("summaries", summary_row), ("sections", section_row)):
        write_rows(os.path.join(directory, f"{name}.jsonl"), map(row, trained))
        write_rows(os.path.join(directory, f"{name}-eval.jsonl"), map(row, held_out))
    rows = [section_row(package) for package in trained]
    write_model(os.path.join(directory, "model"), train_tokenizer(rows))
    for name in JOB_FILES:
        shutil.copy(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), directory)
    with open(os.path.join(directory, "sample.json"), "w", encoding="utf-8") as file:
        json.dump({"rows": max_rows}, file)
    print(f"sample: {len(trained)} packages to learn from, {len(held_out)} held out")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", required=True)
    parser.add_argument("--rows", type=int, required=True, help="packages to learn from, at most")
    options = parser.parse_args()
    aside = options.output.rstrip("/") + ".tmp"
    shutil.rmtree(aside, ignore_errors=True)
    os.makedirs(aside)
    make_sample(aside, options.rows)
    shutil.rmtree(options.output, ignore_errors=True)
    os.rename(aside, options.output)


if __name__ == "__main__":
    main()
