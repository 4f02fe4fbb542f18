"""What is checked of every dataset, as numbers and as warnings in words.

The traps are those that cost users a training run: no stop token learned, prompts trained or
answers not, rows cut off, rows twice, a chat template whose turns end in a token that the model
does not stop at. Nothing here changes a row.
"""

import array
import collections
import itertools

FEW_TRAINED = 0.01  # Share of trained tokens below which the mask is more likely wrong than right.


class Digests:
    """Which rows are the same, at 8 bytes a row: in buckets, of which one at a time is a set."""

    def __init__(self):
        self._buckets = [array.array("Q") for _ in range(256)]

    def extend(self, digests):
        for digest in digests:
            self._buckets[digest & 255].append(digest)

    def duplicates(self):
        """Rows that are the same as an earlier one."""
        return sum(len(bucket) - len(set(bucket)) for bucket in self._buckets)

    def shared_with(self, other):
        """Rows of the other that are the same as a row of this."""
        pairs = zip(self._buckets, other._buckets)
        return sum(sum(map(set(mine).__contains__, theirs)) for mine, theirs in pairs)


class Checks:
    """Grows by count(), and by merge() of what another process counted; about() and warnings()
    tell."""

    def __init__(self, model, options):
        self._model, self._options = model, options
        self.counts = collections.Counter()
        self._unused = set()
        self._new_ids = set(model.new_ids)  # Of added tokens, until a row has them.
        self._turn_ends = collections.Counter()  # token id, or None -> rows of chat
        self._decoded = {}

    def __getstate__(self):
        return (self.counts, self._unused, self._new_ids, self._turn_ends)

    def __setstate__(self, state):
        self.counts, self._unused, self._new_ids, self._turn_ends = state

    def merge(self, other):
        """Adds what was counted of other rows."""
        self.counts.update(other.counts)
        self._unused |= other._unused
        self._new_ids &= other._new_ids
        self._turn_ends.update(other._turn_ends)

    def count(self, example, row, times=1):
        """Of every row read, also of those without a trained token, which are left out. Tokens
        count as often as the row is taken."""
        counts, ids, weights = self.counts, example.input_ids, example.loss_weights
        self._unused.update(row.unused)
        counts["source_rows"] += 1
        counts["rows_longer_than_model"] += example.whole_tokens > (
            self._model.max_positions or example.whole_tokens
        )
        cut = example.whole_tokens - len(example.source_ids) - len(ids)
        counts["truncated_rows"] += cut > 0
        counts["truncated_tokens"] += cut
        trained = list(itertools.compress(ids, weights))
        if not trained:
            counts["untrained_rows"] += 1
            counts["cut_off_rows"] += example.trains
            return
        counts["tokens"] += (len(example.source_ids) + len(ids)) * times
        counts["trained_tokens"] += len(trained) * times
        if example.label is not None or example.masked:
            counts["documents"] += 1
            self._new_ids.difference_update(ids)
            return
        counts["border_rows"] += example.border_moved
        counts["doubled_bos_rows"] += example.bos_dropped
        if self._new_ids:
            self._new_ids.difference_update(ids)
        self._count_stops(ids, weights, trained)
        if example.is_chat and not cut:
            self._turn_ends[self._turn_end(ids, weights)] += 1

    def _count_stops(self, ids, weights, trained):
        stops, counts = self._model.stop_ids, self.counts
        counts["rows_without_stop_token"] += stops.isdisjoint(trained)
        counts["rows_with_masked_stop"] += any(
            weights[at - 1] and not weights[at] for stop in stops for at in _places(ids, stop) if at
        )

    def about(self):
        """Fields of snug.v1.DatasetSummary."""
        names = (
            "tokens trained_tokens truncated_rows truncated_tokens rows_without_stop_token "
            "source_rows untrained_rows duplicate_rows rows_longer_than_model border_rows "
            "rows_with_masked_stop doubled_bos_rows"
        )
        about = {name: self.counts[name] for name in names.split()}
        about["pad_is_eos"] = self._pad_is_eos()
        end = self._common_turn_end()
        if end is not None:
            about["end_of_turn"] = self._text(end)
            about["end_of_turn_is_stop"] = end in self._model.stop_ids
        return about

    def warnings(self):
        """One sentence each, those that cost most first."""
        return [text for text in (*self._of_stopping(), *self._of_rows()) if text]

    def _of_stopping(self):
        counts, end = self.counts, self._common_turn_end()
        rows = counts["source_rows"] - counts["untrained_rows"]
        if counts["documents"]:  # Nothing is written behind them.
            return
        if counts["rows_without_stop_token"]:
            yield (
                f"{counts['rows_without_stop_token']} of {rows} rows have no trained stop token: "
                "stopping is not learned there"
            )
        if end is not None and end not in self._model.stop_ids:
            yield (
                f"the chat template ends a turn with {self._text(end)!r} (id {end}), which is none "
                f"of the model's stop tokens {sorted(self._model.stop_ids)}: add it to "
                '"eos_token_id" in generation_config.json, or answers will not stop'
            )
        if counts["rows_with_masked_stop"]:
            because = ""
            if self._pad_is_eos():
                because = ": the padding token is the end token, and was masked with it"
            yield (
                f"{counts['rows_with_masked_stop']} rows have a stop token right behind trained "
                f"text that is not trained itself{because}"
            )

    def _of_rows(self):
        counts, limit = self.counts, self._options.max_seq_length
        share = counts["trained_tokens"] / max(counts["tokens"], 1)
        if share < FEW_TRAINED and not counts["documents"]:
            yield f"only {100 * share:.2f} % of the tokens are trained: is the mask what you meant?"
        texts = {
            "untrained_rows": "have no trained token and were left out" + self._cut_off(),
            "truncated_rows": f"are longer than max_seq_length ({limit} tokens) and lost their "
            f"end, {counts['truncated_tokens']} tokens in all",
            "rows_longer_than_model": f"are longer than the model's {self._model.max_positions} "
            "positions",
            "duplicate_rows": "are the same as an earlier row",
            "border_rows": "have a token that spans what is trained and what is not, or a prompt "
            "whose end is written otherwise before its completion: trained is all from there",
            "doubled_bos_rows": "spell the token that the tokenizer puts in front; it was not "
            "doubled",
        }
        for name, text in texts.items():
            if counts[name]:
                yield f"{counts[name]} rows {text}"
        if self._new_ids:
            never = ", ".join(repr(self._text(token)) for token in sorted(self._new_ids))
            yield f"added tokens that no row has, so that nothing is learned of them: {never}"
        if self._unused:
            yield "keys that are not used: " + ", ".join(sorted(self._unused))

    def _cut_off(self):
        rows = self.counts["cut_off_rows"]
        return f" ({rows} of them because max_seq_length cut off what is trained)" if rows else ""

    def _turn_end(self, ids, weights):
        """The special token that ends the last trained stretch, white space aside; or None."""
        behind = next(n for n, weight in enumerate(reversed(weights)) if weight)
        for token in reversed(ids[: len(ids) - behind]):
            if self._text(token).strip():
                return token if token in self._model.added_tokens.values() else None
        return None

    def _common_turn_end(self):
        if not self._turn_ends:
            return None
        return self._turn_ends.most_common(1)[0][0]

    def _text(self, token):
        if token not in self._decoded:
            text = self._model.tokenizer.decode([token], skip_special_tokens=False)
            self._decoded[token] = text
        return self._decoded[token]

    def _pad_is_eos(self):
        """Of the tokenizer's own names: such a model's labels are often masked by the pad id."""
        names = self._model.special_tokens
        return "pad_token" in names and names["pad_token"] == names.get("eos_token")


def _places(ids, token):
    """Where the token stands."""
    at = -1
    for _ in range(ids.count(token)):
        at = ids.index(token, at + 1)
        yield at
