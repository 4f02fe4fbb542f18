"""Rows of task: seq2seq_lm, sources and targets."""

from model import SEQ2SEQ


def make_targets(model, sources, options):
    """Makes the dataset's rows sources and targets, where that is the task. Both are cut as
    transformers cuts them: within the text, so that what ends it stays."""
    if (options.task or model.task) != SEQ2SEQ:
        return
    for source in sources:
        source.reader.make_targets()
    if model.has_tokenizer:
        model.tokenizer.enable_truncation(options.max_seq_length)
