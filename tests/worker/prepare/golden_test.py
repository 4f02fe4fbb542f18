"""Every format's golden file: snug-prepare gives the ids and the loss weights that transformers'
chat template and TRL's rules give. The expected files are those of the oracle, which is asked again
here; golden.py writes them."""

import json
import os
import shutil
import sys
import unittest

import golden
from testbed import PrepareTest


class GoldenTest(PrepareTest):
    def test_formats(self):
        self.assertEqual(
            sorted(os.listdir(os.path.join(golden.DATA, "expected"))),
            sorted(name + ".json" for name in golden.CASES),
        )
        for name, (dataset, _, template, options) in golden.CASES.items():
            with self.subTest(name):
                with open(golden.expected_file(name), encoding="utf-8") as file:
                    expected = json.load(file)
                self.assertEqual(golden.expected(name), expected)
                self.assertEqual(self.examples(name, dataset, template, options), expected)

    def examples(self, name, dataset, template, options):
        """What snug-prepare makes of the dataset, as the oracle would say it."""
        model = self.path("model-" + name)
        shutil.copytree(golden.MODEL, model)
        if template:
            # Where models have it today; chat_template_test has the other places.
            shutil.copy(
                os.path.join(golden.DATA, "templates", template + ".jinja"),
                os.path.join(model, "chat_template.jinja"),
            )
        self.model = model
        path = os.path.join(golden.DATA, dataset)
        options = ("--dataset", path, "--output", self.path(name), *options)
        run = self.prepare(*options, max_seq_length=512)
        self.assertEqual(run.returncode, 0, run.stderr)
        tensors, _ = self.prepared(folder=name)
        offsets = tensors["row_offsets"].tolist()
        return [
            {key: tensors[key][a:b].tolist() for key in ("input_ids", "loss_weights")}
            for a, b in zip(offsets, offsets[1:])
        ]


if __name__ == "__main__":
    sys.exit(unittest.main())
