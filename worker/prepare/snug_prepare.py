"""snug-prepare: a dataset and a model's tokenizer in, a prepared dataset or a preview out.

    python snug_prepare.py --model DIR --dataset FILE --output DIR --max-seq-length N
        [--format NAME] [--chat-template TEXT] [--completion-only-loss 0] [--assistant-only-loss 0]
        [--mask-history 1] [--added-token TEXT ...] [--eval-split F --eval-output DIR --seed N]
        [--preview-rows N] [--memory-bytes N] [--cpu-seconds N]

Exit code 0: the output is there, whole. 2: the input is bad, 1: anything else; then the last line
on stderr is a JSON object {"reason", "message", "field"[, "file"][, "line"]}. Lines `progress: N
rows` on stderr meanwhile, and `note: ...` of what was found. With --preview-rows the output is one
file: preview.py. Kinds of files: files/; formats of rows: formats/; what their tokens are:
tokenise.py; the folder: prepared_dataset.py. The evaluation split takes whole rows, chosen by the
seed alone.
"""

import argparse
import hashlib
import sys
import traceback

import files
import formats
import limits
import preview
import tokenise
from chat import Chats
from checks import Checks
from errors import PrepareError
from model import Model
from prepared_dataset import PreparedDataset

PROGRESS_ROWS = 1000
MIN_SEQ_LENGTH = 2  # one token has nothing to be predicted from


def parse_arguments(argv):
    parser = argparse.ArgumentParser(prog="snug-prepare")
    parser.add_argument("--model", required=True)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--max-seq-length", type=int, required=True)
    parser.add_argument("--format", choices=sorted(formats.FORMATS))
    parser.add_argument("--chat-template", default="")
    parser.add_argument("--completion-only-loss", type=int, default=1)
    parser.add_argument("--assistant-only-loss", type=int, default=1)
    parser.add_argument("--mask-history", type=int, default=0)
    parser.add_argument("--added-token", action="append", default=[], dest="added_tokens")
    parser.add_argument("--eval-split", type=float, default=0.0)
    parser.add_argument("--eval-output")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--preview-rows", type=int, default=0)
    parser.add_argument("--memory-bytes", type=int, default=4 << 30)
    parser.add_argument("--cpu-seconds", type=int, default=3600)
    options = parser.parse_args(argv)
    if options.max_seq_length < MIN_SEQ_LENGTH and not options.preview_rows:
        parser.error(f"--max-seq-length must be at least {MIN_SEQ_LENGTH}")
    if not 0 <= options.eval_split < 1:
        parser.error("--eval-split must be in [0, 1)")
    if bool(options.eval_split) != bool(options.eval_output):
        parser.error("--eval-split and --eval-output go together")
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


def count_rows(options):
    rows = files.kind_of(options.dataset).count(options.dataset)
    if rows < (2 if options.eval_split else 1):
        need = "an evaluation split needs two" if rows else "it is empty"
        message = f"the dataset has {rows} rows: {need}"
        raise PrepareError("BAD_DATASET", message, file=options.dataset)
    return rows


def prepare(options):
    """Reads the whole dataset, then writes: evaluation folder first, so that the other implies
    it."""
    model = Model(options.model, options.added_tokens)
    chats = Chats(model, options)
    held_out = choose_eval_rows(count_rows(options), options.eval_split, options.seed)
    train, evaluation = (
        PreparedDataset(options.dataset, Checks(model, options)) for _ in range(2)
    )
    records = files.kind_of(options.dataset).read(options.dataset)
    rows = formats.read_rows(records, options.format)
    for index, (row, example) in enumerate(tokenise.tokenise(model, chats, rows, options)):
        (evaluation if index in held_out else train).add(example, row)
        if index and index % PROGRESS_ROWS == 0:
            say_progress(index)
    say_progress(index + 1)
    about = {"format": row.format, "max_seq_length": options.max_seq_length}
    if model.new_tokens:
        about["first_added_id"] = model.new_ids[0]
    more, notes = {"format": row.format, **chats.about()}, chats.warnings()
    train.require_training()
    if held_out:
        evaluation.require_training("row that eval_split holds out")
        held_out_summary = evaluation.summary(**more)
        evaluation.write(options.eval_output, about, held_out_summary)
        shared = train.checks.shared_with(evaluation.checks)
        more.update(eval_rows=evaluation.rows, eval_rows_in_train=shared)
        notes += [f"evaluation: {text}" for text in held_out_summary["warnings"]]
        if shared:
            notes.append(f"{shared} of {evaluation.rows} evaluation rows are trained on as well")
    summary = train.summary(**more)
    summary["warnings"] += notes
    say_notes(summary)
    train.write(options.output, about, summary, {**chats.new_files(), **model.grown_files()})


def say_progress(rows):
    print(f"progress: {rows} rows", file=sys.stderr, flush=True)


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
        if options.preview_rows:
            preview.write(options)
        else:
            prepare(options)
        return 0
    except PrepareError as error:
        failure, code = error, 2
    except MemoryError:
        message = f"preparing needs more than {options.memory_bytes} bytes of memory"
        failure, code = PrepareError("PREPARE_LIMIT", message, file=options.dataset), 2
    except Exception as error:  # A full disk, a mistake of ours: both still end in that last line.
        traceback.print_exc()
        failure, code = PrepareError("PREPARE_FAILED", str(error) or repr(error), field=None), 1
    print(failure.to_json(), file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
