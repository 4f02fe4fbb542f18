"""The prepared dataset: collected example by example, written as a folder.

  dataset.safetensors  row_offsets I64 [rows + 1], source_line I64 [rows] (in the JSONL file, from
                       1), input_ids I32 [tokens], loss_weights F32 [tokens]
  summary.json         snug.v1.DatasetSummary as proto3 JSON
  dataset.json         {"sha256" of dataset.safetensors, "format", "max_seq_length"}
Jobs whose files have the same content share the folder, so it names no file: only lines.
A safetensors file is: header length (u64, little endian), header (JSON, padded with spaces to a
multiple of 8), then the tensors' bytes one behind another. Rows without a trained token are counted
and left out, so no row is empty. The folder is written aside and renamed: it is whole, or not
there.
"""

import array
import hashlib
import json
import os
import shutil
import sys

from errors import PrepareError


class PreparedDataset:
    """Grows by Add; Write refuses when nothing in it is trained."""

    def __init__(self, source):
        self.source = source
        self._offsets = array.array("q", [0])
        self._lines = array.array("q")
        self._ids = array.array("i")
        self._weights = array.array("f")
        self._bins = {}  # upper length -> rows
        self._counts = dict.fromkeys(("truncated", "no_stop", "untrained", "border", "trained"), 0)
        self._unused = set()

    @property
    def rows(self):
        return len(self._offsets) - 1

    def add(self, example, stop_ids, row):
        """`stop_ids`: tokens that end a text; `row`: what the example was made of."""
        self._unused.update(row.unused)
        trained = [token for token, w in zip(example.input_ids, example.loss_weights) if w]
        if not trained:
            self._counts["untrained"] += 1
            return
        self._ids.extend(example.input_ids)
        self._weights.extend(example.loss_weights)
        self._offsets.append(len(self._ids))
        self._lines.append(row.line)
        length = len(example.input_ids)
        bin_end = 1 << (length - 1).bit_length()  # smallest power of two that is >= length
        self._bins[bin_end] = self._bins.get(bin_end, 0) + 1
        self._counts["trained"] += len(trained)
        self._counts["truncated"] += example.truncated
        self._counts["border"] += example.border_moved
        self._counts["no_stop"] += stop_ids.isdisjoint(trained)

    def summary(self, eval_rows=0):
        """snug.v1.DatasetSummary. Bins run without a gap from the shortest row's to the
        longest's."""
        offsets = self._offsets
        ends = [1 << i for i in range(64) if min(self._bins) <= 1 << i <= max(self._bins)]
        return {
            "rows": self.rows,
            "tokens": len(self._ids),
            "trained_tokens": self._counts["trained"],
            "truncated_rows": self._counts["truncated"],
            "longest_row_tokens": max(b - a for a, b in zip(offsets, offsets[1:])),
            "rows_without_stop_token": self._counts["no_stop"],
            "length_histogram": [
                {"up_to_tokens": end, "rows": self._bins.get(end, 0)} for end in ends
            ],
            "warnings": self._warnings(),
            "eval_rows": eval_rows,
        }

    def write(self, directory, about, eval_rows=0):
        """`about`: what dataset.json says beside the hash."""
        if not self.rows:
            message = (
                f"no row has a trained token ({self._counts['untrained']} rows read): nothing "
                "would be learned. Are the labels all -100, or is max_seq_length too short?"
            )
            raise PrepareError("BAD_DATASET", message, file=self.source)
        aside = directory + ".tmp"
        shutil.rmtree(aside, ignore_errors=True)  # of a run that was killed
        os.makedirs(aside)
        sha256 = self._write_tensors(os.path.join(aside, "dataset.safetensors"))
        _write_json(os.path.join(aside, "summary.json"), self.summary(eval_rows))
        _write_json(os.path.join(aside, "dataset.json"), {"sha256": sha256, **about})
        _sync(aside)
        _publish(aside, directory)

    def _warnings(self):
        texts = {
            "untrained": "rows have no trained token and were left out",
            "truncated": "rows are longer than max_seq_length and lost their end",
            "no_stop": "rows have no trained stop token: stopping is not learned there",
            "border": "rows have a token that spans prompt and completion",
        }
        warnings = [
            f"{self._counts[key]} {text}" for key, text in texts.items() if self._counts[key]
        ]
        if self._unused:
            warnings.append("keys that are not used: " + ", ".join(sorted(self._unused)))
        return warnings

    def _write_tensors(self, path):
        tensors = {
            "row_offsets": ("I64", self._offsets),
            "source_line": ("I64", self._lines),
            "input_ids": ("I32", self._ids),
            "loss_weights": ("F32", self._weights),
        }
        header, at = {}, 0
        for name, (dtype, values) in tensors.items():
            end = at + len(values) * values.itemsize
            header[name] = {"dtype": dtype, "shape": [len(values)], "data_offsets": [at, end]}
            at = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        assert sys.byteorder == "little"  # the format's byte order; arrays are written as they lie
        parts = [len(text).to_bytes(8, "little"), text, *(values for _, values in tensors.values())]
        sha256 = hashlib.sha256()
        with open(path, "wb") as file:
            for part in parts:
                sha256.update(part)
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        return sha256.hexdigest()


def _write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())


def _publish(aside, directory):
    try:
        os.rename(aside, directory)
    except OSError:
        # The name is that of the content: whoever was first wrote the same.
        if not os.path.exists(os.path.join(directory, "dataset.json")):
            raise
        shutil.rmtree(aside)
    _sync(os.path.dirname(os.path.abspath(directory)))


def _sync(directory):
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
