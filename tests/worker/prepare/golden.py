"""What transformers and TRL make of the datasets in tests/data/datasets: the oracle of golden_test.

    python tests/worker/prepare/golden.py      writes model/, the tables and expected/ anew

TRL is not installed; its rules are written down here, as its SFTTrainer of 2026 has them:
  - strings get the end token; a prompt is masked as far as its own tokens go (since 1.14.2);
  - ShareGPT's from/value become role/content, human and gpt become user and assistant;
  - tools may be JSON in a string; a prompt of messages is rendered with the generation prompt.
For conversations the mask is transformers' own (return_assistant_tokens_mask) where the template
marks what is generated, and else the tokens behind those of each tokenised prefix. Ours alone:
weights of messages, arguments of tool calls as objects, LLaMA-Factory's reading of Alpaca.
Nothing of the product is imported, save the text of the template it has for Alpaca.
"""

import csv
import json
import os
import sys

import pyarrow
import pyarrow.parquet
from testbed import ROOT, train_tokenizer, write_json
from transformers import AutoTokenizer

DATA = os.path.join(ROOT, "tests/data/datasets")
MODEL = os.path.join(DATA, "model")
TEXT = ["the cat sat on the mat", "a dog and a cat", "what is a cat? an animal.", "it rains"]
SPECIAL = ["<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]"]
# name: (dataset, rule, chat template, options of snug-prepare)
CASES = {
    "messages": ("messages.jsonl", "messages", "chatml", ()),
    "messages_marked": ("messages.jsonl", "messages", "marked", ()),
    "messages_inst": ("messages.jsonl", "messages", "inst", ()),
    "messages_plain": ("messages_plain.jsonl", "messages", "plain", ()),
    "messages_all": ("messages.jsonl", "all", "chatml", ("--assistant-only-loss", "0")),
    "messages_last": ("messages.jsonl", "last", "chatml", ("--mask-history", "1")),
    "messages_parquet": ("messages.parquet", "messages", "chatml", ()),
    "messages_arrow": ("messages.arrow", "messages", "chatml", ()),
    "tools": ("tools.jsonl", "messages", "chatml", ()),
    "tools_parquet": ("tools.parquet", "messages", "chatml", ()),
    "prompt_completion": ("prompt_completion.jsonl", "prompt_completion", None, ()),
    "prompt_completion_csv": ("prompt_completion.csv", "prompt_completion", None, ()),
    "prompt_completion_all": (
        "prompt_completion.jsonl",
        "prompt_completion_all",
        None,
        ("--completion-only-loss", "0"),
    ),
    **{
        f"prompt_completion_messages{name}": (
            "prompt_completion_messages.jsonl",
            rule,
            template,
            options,
        )
        for name, rule, template, options in (
            ("", "prompt_completion_answers", "chatml", ()),
            ("_marked", "prompt_completion_answers", "marked", ()),
            ("_every_turn", "prompt_completion", "chatml", ("--assistant-only-loss", "0")),
            ("_thoughts", "prompt_completion", "thoughts", ("--assistant-only-loss", "0")),
        )
    },
    "text": ("text.jsonl", "text", None, ()),
    "plain_text": ("plain.txt", "text", None, ()),
    "alpaca": ("alpaca.json", "alpaca", "chatml", ()),
    "alpaca_without_template": ("alpaca.json", "alpaca", None, ()),
    "alpaca_csv": ("alpaca.csv", "alpaca", "inst", ()),
    "sharegpt": ("sharegpt.jsonl", "sharegpt", "chatml", ()),
    "pretokenized": ("pretokenized.jsonl", "pretokenized", None, ()),
    "datum": ("datum.jsonl", "pretokenized", None, ()),
}


def template_text(name):
    with open(os.path.join(DATA, "templates", name + ".jinja"), encoding="utf-8") as file:
        return file.read()


def read_dataset(name):
    """Rows as dicts, by the plainest reader there is for the kind of file."""
    path = os.path.join(DATA, name)
    if name.endswith(".parquet"):
        return pyarrow.parquet.read_table(path).to_pylist()
    if name.endswith(".arrow"):
        return pyarrow.ipc.open_stream(path).read_all().to_pylist()
    with open(path, encoding="utf-8", newline="") as file:
        if name.endswith(".csv"):
            return list(csv.DictReader(file))
        lines = [line for line in file.read().replace("\r\n", "\n").split("\n") if line.strip()]
    if name.endswith(".txt"):
        return [{"text": line} for line in lines]
    return json.loads("\n".join(lines)) if name.endswith(".json") else list(map(json.loads, lines))


class Oracle:
    """ids and loss weights of a row, by rule; `template` None: the model has none."""

    def __init__(self, template):
        self.tokenizer = AutoTokenizer.from_pretrained(MODEL)
        self.tokenizer.chat_template = template

    def example(self, rule, row):
        ids, weights = getattr(self, rule)(row)
        # The first token is predicted from nothing; TRL's shift drops it as well.
        return {"input_ids": ids, "loss_weights": [0.0] + weights[1:]}

    def messages(self, row, weights=None):
        messages = [readable(message) for message in row["messages"]]
        tools = as_json(row.get("tools"))
        given = [m.get("weight", 1) if m["role"] == "assistant" else 0 for m in row["messages"]]
        given = [1 if weight is None else weight for weight in given]  # tables spell it out
        return self.chat(messages, weights or given, tools)

    def all(self, row):
        ids, _ = self.messages(row)
        return ids, [1.0] * len(ids)

    def last(self, row):
        weights = [0] * (len(row["messages"]) - 1) + [1]
        return self.messages(row, weights)

    def chat(self, messages, weights, tools=None):
        if "endgeneration" in self.tokenizer.chat_template:
            out = self.tokenizer.apply_chat_template(
                messages, tools=tools, return_dict=True, return_assistant_tokens_mask=True
            )
            answers = [w for m, w in zip(messages, weights) if m["role"] == "assistant"]
            return out["input_ids"], stretches(out["assistant_masks"], answers)
        ids = self.render(messages, tools)
        mask = [0.0] * len(ids)
        for i, weight in enumerate(weights):
            if weight:
                before = self.render(messages[:i], tools, add_generation_prompt=True)
                begin = common_prefix_length(before, ids)
                end = len(self.render(messages[: i + 1], tools))
                mask[begin:end] = [float(weight)] * (end - begin)
        return ids, mask

    def render(self, messages, tools=None, **more):
        return self.tokenizer.apply_chat_template(messages, tools=tools, **more)["input_ids"]

    def prompt_completion(self, row):
        if isinstance(row["prompt"], list):
            prompt = self.render(row["prompt"], add_generation_prompt=True)
            ids = self.render(row["prompt"] + row["completion"])
        else:
            prompt = self.tokenizer(text=row["prompt"])["input_ids"]
            ids = self.text({"text": row["prompt"] + row["completion"]})[0]
        split = common_prefix_length(prompt, ids)
        return ids, [0.0] * split + [1.0] * (len(ids) - split)

    def prompt_completion_answers(self, row):
        """TRL with assistant_only_loss: both masks must name a token."""
        ids, completion = self.prompt_completion(row)
        _, answers = self.messages({"messages": row["prompt"] + row["completion"]})
        return ids, [a * b for a, b in zip(completion, answers)]

    def prompt_completion_all(self, row):
        ids, _ = self.prompt_completion(row)
        return ids, [1.0] * len(ids)

    def text(self, row):
        end = self.tokenizer.eos_token
        text = row["text"] if row["text"].endswith(end) else row["text"] + end
        ids = self.tokenizer(text=text)["input_ids"]
        return ids, [1.0] * len(ids)

    def alpaca(self, row):
        system = [{"role": "system", "content": row["system"]}] if row.get("system") else []
        turns = as_json(row.get("history") or "[]")
        asked = "\n".join(filter(None, (row["instruction"], row.get("input"))))
        turns = turns + [[asked, row["output"]]]
        roles = ("user", "assistant")
        messages = [{"role": r, "content": c} for turn in turns for r, c in zip(roles, turn)]
        if self.tokenizer.chat_template is None:
            own = os.path.join(ROOT, "worker/prepare/templates/alpaca.jinja")
            with open(own, encoding="utf-8") as file:
                self.tokenizer.chat_template = file.read()
        return self.chat(system + messages, [0] * len(system) + [0, 1] * len(turns))

    def sharegpt(self, row):
        roles = {"human": "user", "gpt": "assistant", "observation": "tool", "system": "system"}
        messages = [{"role": "system", "content": row["system"]}] if row.get("system") else []
        for turn in row["conversations"]:
            if turn["from"] == "function_call":
                calls = [{"type": "function", "function": json.loads(turn["value"])}]
                messages.append({"role": "assistant", "content": "", "tool_calls": calls})
            else:
                messages.append({"role": roles[turn["from"]], "content": turn["value"]})
        weights = [int(message["role"] == "assistant") for message in messages]
        return self.chat(messages, weights, as_json(row.get("tools")))

    def pretokenized(self, row):
        if "model_input" in row:
            return datum(row)
        ids = row["input_ids"]
        masks = zip(*(row[key] for key in ("completion_mask", "assistant_masks") if key in row))
        weights = [float(all(bits)) for bits in masks] or [1.0] * len(ids)
        if "labels" in row:
            weights = [float(label != -100) for label in row["labels"]]
        kept = [i for i, m in enumerate(row.get("attention_mask", [1] * len(ids))) if m]
        return [ids[i] for i in kept], [weights[i] for i in kept]


def datum(row):
    tokens = row["model_input"]
    if isinstance(tokens, dict):
        tokens = [token for chunk in tokens["chunks"] for token in chunk["tokens"]]
    targets, weights = (row["loss_fn_inputs"][key] for key in ("target_tokens", "weights"))
    targets, weights = (v["data"] if isinstance(v, dict) else v for v in (targets, weights))
    return tokens + targets[-1:], [0.0] + weights


def common_prefix_length(ids, other_ids):
    same = [a == b for a, b in zip(ids, other_ids)]
    return [*same, False].index(False)


def stretches(mask, weights):
    """A mask of ones whose stretches have the weights given, one after another."""
    out, weights, weight, before = [], iter(weights), 0, 0
    for bit in mask:
        weight = next(weights) if bit and not before else weight
        out.append(float(bit * weight))
        before = bit
    return out


def as_json(value):
    return json.loads(value) if isinstance(value, str) else value


def readable(message):
    """A message as templates read it: parts joined, arguments of calls as objects, no nulls."""
    message = {k: v for k, v in message.items() if v is not None and k != "weight"}
    if isinstance(message.get("content"), list):
        message["content"] = "".join(part["text"] for part in message["content"])
    calls = []
    for call in message.pop("tool_calls", ()):
        function = {**call["function"], "arguments": as_json(call["function"]["arguments"])}
        calls.append({**call, "function": function})
    return {**message, **({"tool_calls": calls} if calls else {})}


def expected(name):
    """What the case must give: a list of {"input_ids", "loss_weights"}."""
    dataset, rule, template, _ = CASES[name]
    oracle = Oracle(template and template_text(template))
    return [oracle.example(rule, row) for row in read_dataset(dataset)]


def expected_file(name):
    return os.path.join(DATA, "expected", name + ".json")


def write_model():
    tokenizer = train_tokenizer(TEXT, SPECIAL, vocab_size=300)
    os.makedirs(MODEL, exist_ok=True)
    tokenizer.save(os.path.join(MODEL, "tokenizer.json"))
    size = tokenizer.get_vocab_size()
    config = {"model_type": "llama", "vocab_size": size, "max_position_embeddings": 256}
    write_json(MODEL, "config.json", {**config, "bos_token_id": 0, "eos_token_id": 1})
    write_json(MODEL, "generation_config.json", {"eos_token_id": [1, 4]})
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    names.update(tokenizer_class="PreTrainedTokenizerFast", clean_up_tokenization_spaces=False)
    write_json(MODEL, "tokenizer_config.json", names)


def write_tables():
    """The tables hold what the JSON files hold, as far as columns can."""
    plain = [
        row
        for row in read_dataset("messages.jsonl")
        if all(isinstance(message["content"], str) for message in row["messages"])
    ]
    table = pyarrow.Table.from_pylist(plain)
    pyarrow.parquet.write_table(table, os.path.join(DATA, "messages.parquet"))
    with pyarrow.ipc.new_stream(os.path.join(DATA, "messages.arrow"), table.schema) as stream:
        stream.write_table(table)
    tools = read_dataset("tools.jsonl")
    for row in tools:
        row["tools"] = json.dumps(as_json(row["tools"]))
        for message in row["messages"]:
            for call in message.get("tool_calls", ()):
                arguments = as_json(call["function"]["arguments"])
                call["function"]["arguments"] = json.dumps(arguments)
    table = pyarrow.Table.from_pylist(tools)
    pyarrow.parquet.write_table(table, os.path.join(DATA, "tools.parquet"))
    write_csv("prompt_completion", read_dataset("prompt_completion.jsonl"))
    write_csv("alpaca", read_dataset("alpaca.json"))


def write_csv(name, rows):
    columns = list(dict.fromkeys(key for row in rows for key in row if key != "text"))
    with open(os.path.join(DATA, name + ".csv"), "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            cells = (row.get(column, "") for column in columns)
            writer.writerow(c if isinstance(c, str) else json.dumps(c) for c in cells)


def shortened(row):
    weights = [int(weight) if weight == int(weight) else weight for weight in row["loss_weights"]]
    return {**row, "loss_weights": weights}


def main():
    write_model()
    write_tables()
    for name in CASES:
        with open(expected_file(name), "w", encoding="utf-8") as file:
            rows = ",\n".join(json.dumps(shortened(row)) for row in expected(name))
            file.write(f"[\n{rows}\n]\n")


if __name__ == "__main__":
    sys.exit(main())
