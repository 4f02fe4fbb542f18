"""What is not for supervised fine-tuning: refused by its name, before one of its columns is taken
for something else. A job that names its dataset_format is not asked."""

from errors import bad_row

KINDS = (
    (
        "preference data (DPO, ORPO, reward models)",
        lambda v: "chosen" in v and "rejected" in v,
        'train on the chosen answers alone: {"messages": [..., the chosen answer]}',
    ),
    (
        "preference data in OpenAI's form (DPO)",
        lambda v: "preferred_output" in v and "non_preferred_output" in v,
        'train on the preferred answers alone: {"messages": [..., the preferred answer]}',
    ),
    (
        "unpaired preference data (KTO)",
        lambda v: "kto_tag" in v or ("completion" in v and _is_bool(v.get("label"))),
        "keep the rows whose label is true, without the label",
    ),
    (
        "stepwise supervision (process reward models)",
        lambda v: "completions" in v and "labels" in v,
        "it has no supervised form",
    ),
)
# Of a row that is of no format.
PROMPTS = (
    (
        "a prompt alone (GRPO, PPO, online DPO)",
        lambda v: "prompt" in v,
        'put the answer that is to be learned into "completion"',
    ),
)


def _is_bool(value):
    return isinstance(value, bool) or str(value).lower() in ("true", "false")  # as a table has it


def refuse(record, kinds=KINDS):
    """PrepareError(BAD_DATASET) for a record of one of these kinds."""
    for name, is_it, advice in kinds:
        if is_it(record.values):
            raise bad_row(
                record,
                f"this is {name}; Snug does supervised fine-tuning. To do that with it, {advice}",
            )
