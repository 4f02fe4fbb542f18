"""ROUGE of answers against the package rouge_score: every pair, to the last bits of a division."""

import json
import os
import pathlib
import random
import subprocess
import unittest

from rouge_score import rouge_scorer

TOOL = pathlib.Path(os.environ["SNUG_BIN_DIR"]).parent / "tests/bin/show_rouge"
NAMES = ("rouge1", "rouge2", "rougeL")
PAIRS = [
    ("", ""),
    ("", "a"),
    ("a", ""),
    ("...", "a"),
    ("the cat sat", "the cat sat"),
    ("The CAT, sat!", "the-cat_sat"),  # Punctuation and case are none of a word.
    ("the the the cat", "the cat the"),  # A word counts as often as both have it.
    ("a b c d", "d c b a"),
    ("na\u00efve caf\u00e9", "na ve caf"),  # What is beyond ASCII ends a word,
    ("\u212aelvin \u0130stanbul", "kelvin i stanbul"),  # but where its lower case does not.
    ("gcc-12 v1.2.3", "gcc 12 v1 2 3"),
]


def random_pairs(count):
    """Texts of few words, so that much is shared and repeated."""
    draw = random.Random(5)
    words = ["the", "cat", "Sat", "on", "a", "mat.", "x86", "\u00e9t\u00e9", "--", "\u4e2d", "B2b"]
    text = lambda: " ".join(draw.choices(words, k=draw.randrange(30)))  # noqa: E731
    return [(text(), text()) for _ in range(count)]


class RougeTest(unittest.TestCase):
    def test_scores_are_those_of_the_package(self):
        pairs = PAIRS + random_pairs(500)
        lines = "".join(json.dumps(pair) + "\n" for pair in pairs)
        done = subprocess.run([TOOL], input=lines, capture_output=True, text=True, check=True)
        scorer = rouge_scorer.RougeScorer(NAMES, use_stemmer=False)
        shared = 0
        for (answer, wanted), line in zip(pairs, done.stdout.splitlines(), strict=True):
            same, *scores = map(float.fromhex, line.split())
            self.assertEqual(same, float(answer == wanted))
            theirs = scorer.score(wanted, answer)
            for name, score in zip(NAMES, scores, strict=True):
                self.assertAlmostEqual(score, theirs[name].fmeasure, delta=1e-15)
                shared += 0.0 < score < 1.0
        self.assertGreater(shared, 1000)


if __name__ == "__main__":
    unittest.main()
