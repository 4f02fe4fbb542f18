"""Asks a model the questions of a prompt/completion dataset, before and after its fine-tuning.

    python ask.py --before MODEL --after MODEL|ADAPTER --questions FILE [--show N] [--count N]

`--after` may be a model directory of transformers, or a PEFT adapter, which is laid over
`--before`. Shows the first answers side by side and counts the exact ones. Answers are greedy: no
chance in them.
"""

import argparse
import json
import os

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

MAX_ANSWER_TOKENS = 24


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", required=True)
    parser.add_argument("--after", required=True)
    parser.add_argument("--questions", required=True)
    parser.add_argument("--show", type=int, default=4)
    parser.add_argument("--count", type=int, default=4, help="questions asked in all")
    options = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with open(options.questions, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file][: options.count]
    before = load(options.before, options.before)
    after = load(options.after, options.before)
    right = {"before": 0, "after": 0}
    for index, row in enumerate(rows):
        answers = {"before": answer(*before, row["prompt"]), "after": answer(*after, row["prompt"])}
        wanted = row["completion"].strip()
        for name, text in answers.items():
            right[name] += text == wanted
        if index < options.show:
            print("  " + row["prompt"].replace("\n", "\n  "))
            print(f"      before: {answers['before']}\n      after:  {answers['after']}")
            print(f"      Debian: {wanted}")
    print(f"  exactly right: {right['before']} of {len(rows)} before, {right['after']} after")


if __name__ == "__main__":
    main()
