"""snug-prepare: a JSONL dataset and a model's tokenizer in, a prepared dataset out.

    python snug_prepare.py --model DIR --dataset FILE --output DIR --max-seq-length N
        [--eval-split F --eval-output DIR --seed N] [--memory-bytes N] [--cpu-seconds N]

Exit code 0: the output folder is there, whole. 2: the input is bad, 1: anything else; then the last
line on stderr is a JSON object {"reason", "message", "field"[, "file"][, "line"]}. Lines
`progress: N rows` on stderr meanwhile. Row formats: jsonl.py; the rule of tokenising: tokenise.py;
the folder: prepared_dataset.py. The evaluation split takes whole rows, chosen by the seed alone.
"""

import argparse
import hashlib
import itertools
import sys
import traceback

import jsonl
import limits
import tokenise
from errors import PrepareError
from prepared_dataset import PreparedDataset

BATCH_ROWS = 1000  # per call of the tokenizer, which spreads a batch over the cores
MIN_SEQ_LENGTH = 2  # one token has nothing to be predicted from


def parse_arguments(argv):
    parser = argparse.ArgumentParser(prog="snug-prepare")
    parser.add_argument("--model", required=True)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--max-seq-length", type=int, required=True)
    parser.add_argument("--eval-split", type=float, default=0.0)
    parser.add_argument("--eval-output")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--memory-bytes", type=int, default=4 << 30)
    parser.add_argument("--cpu-seconds", type=int, default=3600)
    options = parser.parse_args(argv)
    if options.max_seq_length < MIN_SEQ_LENGTH:
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


def batches(rows, size):
    rows = iter(rows)
    while batch := list(itertools.islice(rows, size)):
        yield batch


def prepare(options):
    """Reads the whole dataset, then writes: evaluation folder first, so that the other implies
    it."""
    model = tokenise.Model(options.model)
    rows = jsonl.count_rows(options.dataset)
    if rows < (2 if options.eval_split else 1):
        need = "an evaluation split needs two" if rows else "it is empty"
        message = f"the dataset has {rows} rows: {need}"
        raise PrepareError("BAD_DATASET", message, file=options.dataset)
    held_out = choose_eval_rows(rows, options.eval_split, options.seed)
    train, evaluation = PreparedDataset(options.dataset), PreparedDataset(options.dataset)
    index = 0
    for batch in batches(jsonl.read_rows(options.dataset), BATCH_ROWS):
        for row, example in zip(batch, tokenise.tokenise(model, batch, options.max_seq_length)):
            (evaluation if index in held_out else train).add(example, model.stop_ids, row)
            index += 1
        print(f"progress: {index} rows", file=sys.stderr, flush=True)
    about = {"format": batch[0].format, "max_seq_length": options.max_seq_length}
    if held_out:
        evaluation.write(options.eval_output, about)
    train.write(options.output, about, eval_rows=evaluation.rows)


def main(argv):
    options = parse_arguments(argv)
    try:
        limits.apply(options.memory_bytes, options.cpu_seconds)
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
