"""The prepared dataset: collected example by example, written as a folder.

  dataset.safetensors  row_offsets I64 [rows + 1], source_line I64 [rows] (in the dataset's file,
                       from 1), input_ids I32 [tokens], loss_weights F32 [tokens]
  summary.json         snug.v1.DatasetSummary as proto3 JSON
  dataset.json         {"sha256" of dataset.safetensors, "format", "max_seq_length"[,
                       "first_added_id": of the tokens that the job adds to the tokenizer]}
  chat_template.jinja  that of the job, where it is none of the model's, and the tokenizer's files
  tokenizer.json, ...  where tokens are added: they go where the model goes
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
    """Grows by add(); write() refuses when nothing in it is trained. `checks`: a checks.Checks, of
    these rows alone."""

    def __init__(self, source, checks):
        self.source = source
        self.checks = checks
        self._offsets = array.array("q", [0])
        self._lines = array.array("q")
        self._ids = array.array("i")
        self._weights = array.array("f")
        self._bins = {}  # upper length -> rows

    @property
    def rows(self):
        return len(self._offsets) - 1

    def add(self, example, row):
        """`row`: what the example was made of."""
        self.checks.count(example, row)
        if not any(example.loss_weights):
            return
        self._ids.extend(example.input_ids)
        self._weights.extend(example.loss_weights)
        self._offsets.append(len(self._ids))
        self._lines.append(row.line)
        length = len(example.input_ids)
        bin_end = 1 << (length - 1).bit_length()  # smallest power of two that is >= length
        self._bins[bin_end] = self._bins.get(bin_end, 0) + 1

    def summary(self, **more):
        """snug.v1.DatasetSummary; `more`: what is not known here. Bins run without a gap from the
        shortest row's to the longest's."""
        offsets = self._offsets
        least, most = min(self._bins, default=1), max(self._bins, default=0)
        ends = [1 << i for i in range(64) if least <= 1 << i <= most]
        return {
            "rows": self.rows,
            "longest_row_tokens": max((b - a for a, b in zip(offsets, offsets[1:])), default=0),
            "length_histogram": [
                {"up_to_tokens": end, "rows": self._bins.get(end, 0)} for end in ends
            ],
            **self.checks.about(),
            "warnings": self.checks.warnings(),
            **more,
        }

    def require_training(self, rows="row"):
        """PrepareError when no row has a trained token. `rows`: what one of them is called."""
        if self.rows:
            return
        message = (
            f"no {rows} has a trained token ({self.checks.counts['source_rows']} rows read): "
            "nothing would be learned. Are the labels all -100, is no message the assistant's, or "
            "is max_seq_length too short?"
        )
        raise PrepareError("BAD_DATASET", message, file=self.source)

    def write(self, directory, about, summary, files=None):
        """`about`: what dataset.json says beside the hash. `files`: more of them, {name: text}."""
        aside = directory + ".tmp"
        shutil.rmtree(aside, ignore_errors=True)  # of a run that was killed
        os.makedirs(aside)
        sha256 = self._write_tensors(os.path.join(aside, "dataset.safetensors"))
        for name, text in (files or {}).items():
            _write_text(os.path.join(aside, name), text)
        _write_json(os.path.join(aside, "summary.json"), summary)
        _write_json(os.path.join(aside, "dataset.json"), {"sha256": sha256, **about})
        _sync(aside)
        _publish(aside, directory)

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
    _write_text(path, json.dumps(value, indent=1) + "\n")


def _write_text(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
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
