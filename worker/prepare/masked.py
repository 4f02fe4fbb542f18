"""Rows of task: masked_lm: texts of which the worker hides tokens, other ones in every epoch.

Here is said which tokens may be hidden: all but the tokenizer's special ones, as transformers'
DataCollatorForLanguageModeling has it (get_special_tokens_mask of what is tokenised already).
"""

from model import MASKED


def mask(model, sources, options):
    """Makes the dataset's rows such texts, where that is the task: gives what dataset.json says of
    the mask, else {}. Texts are cut as transformers cuts them: what ends them stays."""
    if (options.task or model.task) != MASKED:
        return {}
    about = {"mask_token_id": model.mask_id(), "mask_vocabulary": model.tokens()}
    for source in sources:
        source.reader.mask()
    model.tokenizer.enable_truncation(options.max_seq_length)
    return about
