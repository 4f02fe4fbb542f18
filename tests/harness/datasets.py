"""Datasets for tests: rows of token ids with loss weights, as a prepared dataset or as JSONL.

The prepared form is the one that snug-prepare writes: dataset.safetensors (input_ids,
loss_weights, row_offsets), summary.json and dataset.json. The weight of a token is that of
predicting it; the first token of a row is never predicted, so its weight is 0.
"""

import hashlib
import json
import pathlib
import random

import numpy as np
from safetensors.numpy import load_file, save_file


def random_rows(seed, lengths, vocabulary, masked=True):
    """Rows [(ids, weights)] of the given lengths; masked: a prompt and a hole are not trained."""
    generator = random.Random(seed)
    rows = []
    for length in lengths:
        ids = [generator.randrange(3, vocabulary) for _ in range(length)]
        weights = [0.0] + [1.0] * (length - 1)
        if masked and length > 3:
            prompt = generator.randrange(1, length // 2 + 1)
            weights[:prompt] = [0.0] * prompt
            hole = generator.randrange(prompt, length)
            weights[hole] = 0.0 if sum(weights) > 1 else weights[hole]
        rows.append((ids, weights))
    return rows


def trained_tokens(rows):
    """How many tokens of these rows carry loss."""
    return int(sum(sum(weights) for _, weights in rows))


def _summary(rows):
    lengths = [len(ids) for ids, _ in rows]
    bins, upper, counted = [], 1, 0
    while counted < len(lengths):
        inside = sum(upper // 2 < length <= upper for length in lengths)
        bins.append({"up_to_tokens": str(upper), "rows": str(inside)})
        counted += inside
        upper *= 2
    return {
        "rows": str(len(rows)),
        "tokens": str(sum(lengths)),
        "trained_tokens": str(trained_tokens(rows)),
        "longest_row_tokens": str(max(lengths)),
        "length_histogram": bins,
    }


def write_prepared(rows, folder):
    """Writes a prepared dataset folder."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    offsets = np.cumsum([0] + [len(ids) for ids, _ in rows]).astype(np.int64)
    tensors = {
        "input_ids": np.concatenate([np.array(ids, np.int32) for ids, _ in rows]),
        "loss_weights": np.concatenate([np.array(weights, np.float32) for _, weights in rows]),
        "row_offsets": offsets,
    }
    save_file(tensors, folder / "dataset.safetensors")
    content = (folder / "dataset.safetensors").read_bytes()
    about = {
        "sha256": hashlib.sha256(content).hexdigest(),
        "format": "pretokenized",
        "max_seq_length": max(len(ids) for ids, _ in rows),
    }
    (folder / "dataset.json").write_text(json.dumps(about))
    (folder / "summary.json").write_text(json.dumps(_summary(rows)))
    return folder


def write_tagged(rows, folder):
    """Writes a prepared dataset of tokens with a class each [(ids, labels)], -100 for none."""
    weighted = [(ids, [float(label != -100) for label in labels]) for ids, labels in rows]
    labels = np.concatenate([np.array(labels, np.int32) for _, labels in rows])
    return _with_labels(write_prepared(weighted, folder), "token_labels", labels)


def write_masked(rows, folder, mask, vocabulary):
    """Writes a prepared dataset of rows [(ids, weights)], of which tokens with a weight are hidden
    by the token `mask`, or replaced by one of the first `vocabulary`."""
    folder = write_prepared(rows, folder)
    about = json.loads((folder / "dataset.json").read_text())
    about.update(mask_token_id=mask, mask_vocabulary=vocabulary)
    (folder / "dataset.json").write_text(json.dumps(about))
    return folder


def write_documents(rows, folder):
    """Writes a prepared dataset of documents [(ids, label)]; a label is a class, or a list of
    numbers."""
    weighted = [(ids, [0.0] * (len(ids) - 1) + [1.0]) for ids, _ in rows]
    labels = np.array([label for _, label in rows])
    labels = labels.astype(np.int32 if labels.ndim == 1 else np.float32)
    return _with_labels(write_prepared(weighted, folder), "labels", labels)


def write_images(rows, values, tokens, folder):
    """Writes a prepared dataset of images [(bytes [side, side, channels], label)] of so many tokens
    each, which are their own originals; `values` [channels, 256]: what is read of a byte."""
    folder = write_documents([([0] * tokens, label) for _, label in rows], folder)
    path = folder / "dataset.safetensors"
    pixels = np.stack([pixels for pixels, _ in rows])
    more = {
        "originals": pixels.reshape(-1),
        "original_offsets": np.arange(len(rows) + 1, dtype=np.int64) * pixels[0].size,
        "original_widths": np.full(len(rows), pixels.shape[2], np.int32),
    }
    save_file({**load_file(path), "pixels": pixels, "pixel_values": values, **more}, path)
    return folder


def _with_labels(folder, name, labels):
    path = folder / "dataset.safetensors"
    save_file({**load_file(path), name: labels}, path)
    about = json.loads((folder / "dataset.json").read_text())
    about["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    about["num_labels"] = int(labels.max()) + 1 if labels.ndim == 1 else labels.shape[1]
    (folder / "dataset.json").write_text(json.dumps(about))
    return folder


def write_targets(rows, folder):
    """Writes a prepared dataset of [(source ids, target ids, weights of the target)]."""
    folder = write_prepared([(ids, weights) for _, ids, weights in rows], folder)
    path = folder / "dataset.safetensors"
    sources = [np.array(ids, np.int32) for ids, _, _ in rows]
    more = {
        "source_ids": np.concatenate(sources),
        "source_offsets": np.cumsum([0] + [len(ids) for ids in sources]).astype(np.int64),
    }
    save_file({**load_file(path), **more}, path)
    about = json.loads((folder / "dataset.json").read_text())
    about["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "dataset.json").write_text(json.dumps(about))
    return folder


def read_prepared(folder):
    """Rows [(ids, weights)] of a prepared dataset folder."""
    tensors = load_file(pathlib.Path(folder) / "dataset.safetensors")
    ends = tensors["row_offsets"].tolist()
    ids, weights = tensors["input_ids"].tolist(), tensors["loss_weights"].tolist()
    return [(ids[a:b], weights[a:b]) for a, b in zip(ends, ends[1:])]


def write_pretokenized(rows, path):
    """Writes rows as JSONL {"input_ids", "labels"}, -100 where nothing is trained."""
    with open(path, "w", encoding="utf-8") as out:
        for ids, weights in rows:
            labels = [i if w else -100 for i, w in zip(ids, weights)]
            out.write(json.dumps({"input_ids": ids, "labels": labels}) + "\n")
    return pathlib.Path(path)


WORDS = "red green blue one two three four house tree river stone cloud bird fish light".split()


def sentences(seed, count):
    """Prompt/completion pairs of a toy language with something to learn: the answer is the prompt
    read backwards."""
    generator = random.Random(seed)
    pairs = []
    for _ in range(count):
        words = generator.choices(WORDS, k=generator.randrange(2, 9))
        pairs.append({"prompt": " ".join(words) + " = ", "completion": " ".join(reversed(words))})
    return pairs


def write_pairs(pairs, path):
    """Writes prompt/completion pairs as JSONL."""
    with open(path, "w", encoding="utf-8") as out:
        for pair in pairs:
            out.write(json.dumps(pair) + "\n")
    return pathlib.Path(path)
