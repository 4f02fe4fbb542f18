"""snug-prepare: a dataset and a model's tokenizer in, a prepared dataset or a preview out.

    python snug_prepare.py --model DIR (--dataset PATH | --sources FILE) --output DIR
        --max-seq-length N
        [--format NAME] [--chat-template TEXT] [--completion-only-loss 0] [--assistant-only-loss 0]
        [--mask-history 1] [--task NAME] [--num-labels N]
        [--problem-type NAME] [--label-name TEXT ...] [--added-token TEXT ...] [--originals 1]
        [--eval-split F --eval-output DIR --seed N]
        [--preview-rows N [--scan-rows N]] [--memory-bytes N] [--cpu-seconds N]

Exit code 0: the output is there, whole. 2: the input is bad, 1: anything else; then the last line
on stderr is a JSON object {"reason", "message", "field"[, "file"][, "line"]}. Lines `progress: N of
M rows, S s left` on stderr meanwhile, and `note: ...` of what was found. With --preview-rows the
output is one file: preview.py. Which files: sources.py; their kinds: files/; formats of rows:
formats/; what their tokens are: tokenise.py; by which processes: parts.py; the folder:
prepared_dataset.py. The evaluation split takes whole rows, chosen by the seed alone.
"""

import argparse
import contextlib
import hashlib
import os
import sys
import time
import traceback

import formats
import limits
import preview
from chat import Chats
from checks import Checks
from errors import BadRows, PrepareError
from files import given
from labels import PROBLEMS, classify
from masked import mask
from model import TASKS, Model
from parts import Maker
from prepared_dataset import PreparedDataset
from seq2seq import make_targets
from sources import sources_of

PROGRESS_SECONDS = 1.0
MIN_SEQ_LENGTH = 2  # one token has nothing to be predicted from


def parse_arguments(argv):
    parser = argparse.ArgumentParser(prog="snug-prepare")
    parser.add_argument("--model", required=True)
    given.add_options(parser)
    parser.add_argument("--dataset")
    parser.add_argument("--sources")
    parser.add_argument("--output", required=True)
    parser.add_argument("--max-seq-length", type=int, required=True)
    parser.add_argument("--format", choices=sorted(formats.NAMED))
    parser.add_argument("--chat-template", default="")
    parser.add_argument("--completion-only-loss", type=int, default=1)
    parser.add_argument("--assistant-only-loss", type=int, default=1)
    parser.add_argument("--mask-history", type=int, default=0)
    parser.add_argument("--task", choices=TASKS)
    parser.add_argument("--num-labels", type=int, default=0)
    parser.add_argument("--problem-type", choices=PROBLEMS)
    parser.add_argument("--label-name", action="append", default=[], dest="label_names")
    parser.add_argument("--originals", type=int, default=0)
    parser.add_argument("--added-token", action="append", default=[], dest="added_tokens")
    parser.add_argument("--eval-split", type=float, default=0.0)
    parser.add_argument("--eval-output")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--preview-rows", type=int, default=0)
    parser.add_argument("--scan-rows", type=int, default=preview.SCANNED_ROWS)
    parser.add_argument("--memory-bytes", type=int, default=4 << 30)
    parser.add_argument("--cpu-seconds", type=int, default=3600)
    options = parser.parse_args(argv)
    if bool(options.dataset) == bool(options.sources):
        parser.error("give --dataset or --sources")
    if options.max_seq_length < MIN_SEQ_LENGTH and not options.preview_rows:
        parser.error(f"--max-seq-length must be at least {MIN_SEQ_LENGTH}")
    if not 0 <= options.eval_split < 1:
        parser.error("--eval-split must be in [0, 1)")
    if bool(options.eval_split) != bool(options.eval_output):
        parser.error("--eval-split and --eval-output go together")
    options.one_at_a_time = contextlib.nullcontext()  # A lock, where processes share the memory.
    return options


def choose_eval_rows(rows, share, seed):
    """Indices of the rows held out: a function of (rows, share, seed) alone, the same
    everywhere."""
    if not share:
        return frozenset()
    count = min(max(round(rows * share), 1), rows - 1)

    def rank(index):
        return hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=8).digest()

    return frozenset(sorted(range(rows), key=rank)[:count])


def count_rows(options, sources):
    rows = sum(source.count() for source in sources)
    if rows < (2 if options.eval_split else 1):
        need = "an evaluation split needs two" if rows else "it is empty"
        message = f"the dataset has {rows} rows: {need}"
        raise PrepareError("BAD_DATASET", message, file=sources[0].name)
    return rows


def names_of_files(sources):
    """{path: (number, name for people)} of all files of the dataset."""
    paths = list(dict.fromkeys(path for source in sources for path in source.files))
    common = os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in paths])
    return {path: (i, os.path.relpath(path, common)) for i, path in enumerate(paths)}


def prepare(options):
    """Reads the whole dataset, then writes: evaluation folder first, so that the other implies
    it."""
    model = Model(options.model, options.added_tokens)
    if model.images:
        model.images.keeps_originals = bool(options.originals)
    sources = sources_of(options, model.task)
    rows = count_rows(options, sources)
    labels = classify(model, sources, options)
    make_targets(model, sources, options)
    masks = mask(model, sources, options)
    for source in sources:
        source.settle()
    held_out = choose_eval_rows(rows, options.eval_split, options.seed)
    names = names_of_files(sources)
    numbers = {path: number for path, (number, _) in names.items()}
    beside = os.path.dirname(os.path.abspath(options.output))
    train, evaluation = (
        PreparedDataset(sources[0].name, Checks(model, options), beside, model.images)
        for _ in range(2)
    )
    chats, bad, progress = Chats(model, options), BadRows(), Progress(rows)
    maker = Maker(model, sources, options, held_out=held_out, numbers=numbers)
    for part in maker.parts(rows):
        train.add(part.train)
        evaluation.add(part.evaluation)
        chats.merge(part.chats)
        bad.merge(part.bad)
        model.stop_ids |= part.stop_ids
        progress.add(part.rows)
    progress.say()
    bad.require_none(progress.rows)
    form = ", ".join(sorted({source.reader.format for source in sources}))
    about = {"format": form, "max_seq_length": options.max_seq_length, **masks}
    if model.new_tokens:
        about["first_added_id"] = model.new_ids[0]
    if len(names) > 1:
        about["files"] = [name for _, name in names.values()]
    more, notes = {"format": form, **chats.about()}, chats.warnings()
    if labels:
        about.update(labels.about())
        notes += labels.warnings(train.rows_by_label())
    train.require_training()
    if held_out:
        evaluation.require_training("row that eval_split holds out")
        held_out_summary = evaluation.summary(**more)
        evaluation.write(options.eval_output, about, held_out_summary)
        shared = train.digests.shared_with(evaluation.digests)
        more.update(eval_rows=evaluation.rows, eval_rows_in_train=shared)
        notes += [f"evaluation: {text}" for text in held_out_summary["warnings"]]
        if shared:
            notes.append(f"{shared} of {evaluation.rows} evaluation rows are trained on as well")
    summary = train.summary(**more)
    summary["warnings"] += notes
    say_notes(summary)
    train.write(options.output, about, summary, {**chats.new_files(), **model.grown_files()})


class Progress:
    """Says how far it is, at most once a second, with the time that is left at this pace."""

    def __init__(self, total):
        self.rows, self._total = 0, total
        self._began = self._said = time.monotonic()

    def add(self, rows):
        self.rows += rows
        if time.monotonic() - self._said >= PROGRESS_SECONDS:
            self.say()

    def say(self):
        now = self._said = time.monotonic()
        left = (now - self._began) * (self._total - self.rows) / max(self.rows, 1)
        text = f"progress: {self.rows} of {self._total} rows"
        text += f", {left:.0f} s left" if left >= 1 else ""
        print(text, file=sys.stderr, flush=True)


def say_notes(summary):
    share = 100 * summary["trained_tokens"] / summary["tokens"]
    text = f"{summary['format']}: {summary['rows']} rows, {summary['tokens']} tokens"
    print(f"note: {text}, {share:.1f} % trained", file=sys.stderr)
    for warning in summary["warnings"]:
        print(f"note: {warning}", file=sys.stderr)


def main(argv):
    options = parse_arguments(argv)
    try:
        limits.apply(options.memory_bytes, options.cpu_seconds)
        given.serve(options)
        if options.preview_rows:
            preview.write(options)
        else:
            prepare(options)
        return 0
    except PrepareError as error:
        failure, code = error, 2
    except MemoryError:
        message = f"preparing needs more than {options.memory_bytes} bytes of memory"
        failure, code = PrepareError("PREPARE_LIMIT", message), 2
    except Exception as error:  # A full disk, a mistake of ours: both still end in that last line.
        traceback.print_exc()
        failure, code = PrepareError("PREPARE_FAILED", str(error) or repr(error), field=None), 1
    print(failure.to_json(), file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
