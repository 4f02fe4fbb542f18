"""Asks a model the questions of a prompt/completion dataset, before and after its fine-tuning.

    python ask.py --before MODEL --after MODEL|ADAPTER --questions FILE [--show N] [--count N]
        [--results FILE]

`--after` may be a model directory of transformers, or a PEFT adapter, which is laid over
`--before`. Shows the first answers side by side and counts the exact ones; answers are greedy: no
chance in them. Then the loss of both over all questions, computed by transformers, as a check on
what the job reported; `--results` gets it as {"loss": {"before", "after"}}.
"""

import argparse
import json
import os

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

MAX_ANSWER_TOKENS = 24
MAX_SEQ_LENGTH = 256  # as in full.yaml and lora.yaml


def load(directory, base):
    """A model with its tokenizer; an adapter is laid over `base`."""
    if os.path.exists(os.path.join(directory, "adapter_config.json")):
        from peft import PeftModel

        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), directory)
    else:
        model = AutoModelForCausalLM.from_pretrained(directory)
    return model.eval(), AutoTokenizer.from_pretrained(directory)


def answer(model, tokenizer, prompt):
    """The first line of the greedy continuation."""
    question = tokenizer(prompt, return_tensors="pt")
    with torch.no_grad():
        ids = model.generate(
            **question,
            max_new_tokens=MAX_ANSWER_TOKENS,
            do_sample=False,
            pad_token_id=tokenizer.eos_token_id,
        )[0, question["input_ids"].shape[1] :]
    text = tokenizer.decode(ids, skip_special_tokens=True).strip()
    return text.splitlines()[0] if text else ""


def loss(model, tokenizer, rows):
    """Mean over the trained tokens, which are those of the completions and their end token."""
    total, count = 0.0, 0
    for row in rows:
        prompt = len(tokenizer(row["prompt"])["input_ids"])
        text = row["prompt"] + row["completion"] + tokenizer.eos_token
        ids = tokenizer(text, return_tensors="pt")["input_ids"][:, :MAX_SEQ_LENGTH]
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, prompt - 1 : -1].float()
        total += torch.nn.functional.cross_entropy(logits, ids[0, prompt:], reduction="sum").item()
        count += len(logits)
    return total / count


def compare(before, after, rows, show):
    """Asks both all rows; shows the first `show` answers, then how many were exactly right."""
    right = {"before": 0, "after": 0}
    for index, row in enumerate(rows):
        answers = {"before": answer(*before, row["prompt"]), "after": answer(*after, row["prompt"])}
        wanted = row["completion"].strip()
        for name, text in answers.items():
            right[name] += text == wanted
        if index < show:
            print("  " + row["prompt"].replace("\n", "\n  "))
            print(f"      before: {answers['before']}\n      after:  {answers['after']}")
            print(f"      Debian: {wanted}")
    print(f"  exactly right: {right['before']} of {len(rows)} before, {right['after']} after")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", required=True)
    parser.add_argument("--after", required=True)
    parser.add_argument("--questions", required=True)
    parser.add_argument("--show", type=int, default=4)
    parser.add_argument("--count", type=int, default=4, help="questions asked in all")
    parser.add_argument("--results")
    return parser.parse_args()


def main():
    options = parse_arguments()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with open(options.questions, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    before = load(options.before, options.before)
    after = load(options.after, options.before)
    compare(before, after, rows[: options.count], options.show)
    losses = {"before": loss(*before, rows), "after": loss(*after, rows)}
    print(f"  loss on all {len(rows)}: ", end="")
    print(f"{losses['before']:.3f} before, {losses['after']:.3f} after")
    if options.results:
        with open(options.results, "w", encoding="utf-8") as file:
            json.dump({"loss": losses}, file)


if __name__ == "__main__":
    main()
