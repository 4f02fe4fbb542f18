"""The prepared dataset: collected example by example, written as a folder.

  dataset.safetensors  row_offsets I64 [rows + 1], source_line I64 [rows] (in the dataset's file,
                       from 1), input_ids I32 [tokens], loss_weights F32 [tokens]; of several
                       files source_file I32 [rows] (their numbers, from 0); of documents labels,
                       I32 [rows] of classes, F32 [rows, num_labels] of numbers, and the weight 1
                       at each one's last token; of words with classes token_labels I32 [tokens],
                       -100 where there is none; of targets source_offsets I64 [rows + 1] and
                       source_ids I32, what they are made of, and weights from the first token on;
                       where tokens have types, second_begins I32 [rows] (the first token of a
                       pair's second text, or the row's end); of images pixels
                       U8 [rows, height, width, channels], pixel_values F32 [channels, 256] (what
                       the model reads of each byte), and ids that are all 0; where these are
                       augmented original_offsets I64 [rows + 1], original_widths I32 [rows] in
                       pixels, originals U8: [height, width, channels] of each
  summary.json         snug.v1.DatasetSummary as proto3 JSON
  dataset.json         {"sha256" of dataset.safetensors, "format", "max_seq_length"[,
                       "first_added_id": of the tokens that the job adds to the tokenizer][,
                       "mask_token_id", "mask_vocabulary": what hides a token, and of how many ids
                       another is drawn, where tokens with a weight are hidden][,
                       "files": names of several files, by their numbers][, "num_labels",
                       "problem_type"[, "label_names": of the classes, by their ids]]}
  chat_template.jinja  that of the job, where it is none of the model's, and the tokenizer's files
  tokenizer.json, ...  where tokens are added: they go where the model goes
Jobs whose files have the same content share the folder, so it names no file: only lines.
A safetensors file is: header length (u64, little endian), header (JSON, padded with spaces to a
multiple of 8), then the tensors' bytes one behind another. Rows without a trained token are counted
and left out, so no row is empty. The folder is written aside and renamed: it is whole, or not
there.
"""

import array
import collections
import hashlib
import itertools
import json
import math
import os
import shutil
import sys
import tempfile

from checks import Digests
from errors import PrepareError

COPIED_BYTES = 1 << 20
DTYPE_BYTES = {"I64": 8, "I32": 4, "F32": 4, "U8": 1}


class Examples:
    """Some rows' examples, in memory: one process makes them, another writes them."""

    def __init__(self, checks):
        self.checks = checks
        self.lengths = array.array("q")
        self.lines = array.array("q")
        self.files = array.array("i")
        self.ids = array.array("i")
        self.weights = array.array("f")
        self.digests = array.array("Q")
        self.labels = array.array("i")
        self.targets = array.array("f")
        self.token_labels = array.array("i")
        self.second_begins = array.array("i")
        self.source_lengths = array.array("q")
        self.source_ids = array.array("i")
        self.pixels = bytearray()
        self.originals = bytearray()
        self.original_lengths = array.array("q")
        self.original_widths = array.array("i")

    def add(self, example, row, times=1, file=0):
        """`row`: what the example was made of, of the dataset's file number `file`."""
        self.checks.count(example, row, times)
        if not any(example.loss_weights):
            return
        self.digests.append(example.digest)
        for _ in range(times):
            self.ids.extend(example.input_ids)
            self.weights.extend(example.loss_weights)
            self.lengths.append(len(example.input_ids))
            self.lines.append(row.line)
            self.files.append(file)
            if isinstance(example.label, list):
                self.targets.extend(example.label)
            elif example.label is not None:
                self.labels.append(example.label)
            if example.token_labels is not None:
                self.token_labels.extend(example.token_labels)
            self.pixels += example.pixels
            if example.original:
                self.originals += example.original.pixels
                self.original_lengths.append(len(example.original.pixels))
                self.original_widths.append(example.original.width)
            if example.second_begin is not None:
                self.second_begins.append(example.second_begin)
            if example.source_ids:
                self.source_lengths.append(len(example.source_ids))
                self.source_ids.extend(example.source_ids)


class PreparedDataset:
    """Grows by add(); write() refuses when nothing in it is trained. `checks`: a checks.Checks, of
    these rows alone. In memory is what a row's place takes, 28 bytes (and 8 for its source, 12 for
    its original, 4 for each number of its label); its tokens are on the disk, in files of the
    folder `beside` that have no name."""

    def __init__(self, source, checks, beside, images=None):
        """`images`: what the model makes of them, where the rows are these."""
        self.source = source
        self._images = images
        self._pixels = tempfile.TemporaryFile(dir=beside)
        self._originals = tempfile.TemporaryFile(dir=beside)
        self._original_offsets = array.array("q", [0])
        self._original_widths = array.array("i")
        self.checks = checks
        self.digests = Digests()
        self._offsets = array.array("q", [0])
        self._lines = array.array("q")
        self._files = array.array("i")
        self._labels = array.array("i")
        self._targets = array.array("f")
        self._second_begins = array.array("i")
        self._source_offsets = array.array("q", [0])
        self._source_ids = tempfile.TemporaryFile(dir=beside)
        self._ids = tempfile.TemporaryFile(dir=beside)
        self._weights = tempfile.TemporaryFile(dir=beside)
        self._token_labels = tempfile.TemporaryFile(dir=beside)
        self._classes_of_tokens = collections.Counter()
        self._bins = collections.Counter()  # upper length -> rows

    @property
    def rows(self):
        return len(self._offsets) - 1

    def add(self, examples):
        self.checks.merge(examples.checks)
        self.digests.extend(examples.digests)
        end = self._offsets[-1]
        for length in examples.lengths:
            end += length
            self._offsets.append(end)
            # The smallest power of two that is >= length.
            self._bins[1 << (length - 1).bit_length()] += 1
        self._lines.extend(examples.lines)
        self._files.extend(examples.files)
        self._labels.extend(examples.labels)
        self._targets.extend(examples.targets)
        self._second_begins.extend(examples.second_begins)
        for length in examples.source_lengths:
            self._source_offsets.append(self._source_offsets[-1] + length)
        self._source_ids.write(examples.source_ids)
        self._ids.write(examples.ids)
        self._weights.write(examples.weights)
        self._token_labels.write(examples.token_labels)
        self._classes_of_tokens.update(examples.token_labels)
        self._pixels.write(examples.pixels)
        self._originals.write(examples.originals)
        for length in examples.original_lengths:
            self._original_offsets.append(self._original_offsets[-1] + length)
        self._original_widths.extend(examples.original_widths)

    def summary(self, **more):
        """snug.v1.DatasetSummary; `more`: what is not known here. Bins run without a gap from the
        shortest row's to the longest's."""
        offsets = self._offsets
        least, most = min(self._bins, default=1), max(self._bins, default=0)
        ends = [1 << i for i in range(64) if least <= 1 << i <= most]
        self.checks.counts["duplicate_rows"] = self.digests.duplicates()
        return {
            "rows": self.rows,
            "longest_row_tokens": max((b - a for a, b in zip(offsets, offsets[1:])), default=0),
            "length_histogram": [{"up_to_tokens": end, "rows": self._bins[end]} for end in ends],
            **self.checks.about(),
            "warnings": self.checks.warnings(),
            **more,
        }

    def rows_by_label(self):
        """{class: how many rows, or tokens, have it}."""
        if self._classes_of_tokens:
            return self._classes_of_tokens
        if not self._targets:
            return collections.Counter(self._labels)
        width = len(self._targets) // self.rows
        return collections.Counter(i % width for i, there in enumerate(self._targets) if there)

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
        tokens = self._offsets[-1]
        tensors = {
            "row_offsets": ("I64", [len(self._offsets)], self._offsets),
            "source_line": ("I64", [len(self._lines)], self._lines),
        }
        if self._original_widths:
            offsets, widths = self._original_offsets, self._original_widths
            tensors["original_offsets"] = ("I64", [len(offsets)], offsets)
            tensors["original_widths"] = ("I32", [len(widths)], widths)
        tensors["input_ids"] = ("I32", [tokens], self._ids)
        tensors["loss_weights"] = ("F32", [tokens], self._weights)
        if any(self._files):
            tensors["source_file"] = ("I32", [len(self._files)], self._files)
        if self._labels:
            tensors["labels"] = ("I32", [len(self._labels)], self._labels)
        if self._targets:
            shape = [self.rows, len(self._targets) // self.rows]
            tensors["labels"] = ("F32", shape, self._targets)
        if self._classes_of_tokens:
            tensors["token_labels"] = ("I32", [tokens], self._token_labels)
        if self._second_begins:
            tensors["second_begins"] = ("I32", [len(self._second_begins)], self._second_begins)
        if sources := self._source_offsets[-1]:
            tensors["source_offsets"] = ("I64", [len(self._source_offsets)], self._source_offsets)
            tensors["source_ids"] = ("I32", [sources], self._source_ids)
        if self._images:
            side, channels = self._images.side, self._images.channels
            values = array.array("f", itertools.chain(*self._images.values))
            tensors["pixel_values"] = ("F32", [channels, len(values) // channels], values)
            tensors["pixels"] = ("U8", [self.rows, side, side, channels], self._pixels)
        if self._original_widths:
            tensors["originals"] = ("U8", [self._original_offsets[-1]], self._originals)
        header, at = {}, 0
        for name, (dtype, shape, _) in tensors.items():
            end = at + math.prod(shape) * DTYPE_BYTES[dtype]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
            at = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        assert sys.byteorder == "little"  # the format's byte order; arrays are written as they lie
        parts = [len(text).to_bytes(8, "little"), text, *(t[-1] for t in tensors.values())]
        sha256 = hashlib.sha256()
        with open(path, "wb") as file:
            for block in itertools.chain.from_iterable(map(_blocks, parts)):
                sha256.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        return sha256.hexdigest()


def _blocks(part):
    """The bytes of an array, or of a file from its beginning."""
    if not hasattr(part, "read"):
        yield part
        return
    part.seek(0)
    while block := part.read(COPIED_BYTES):
        yield block


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
