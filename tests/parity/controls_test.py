"""The long set: every trait of every family is taken out of the reference, in fp32 and in bf16, and
every criterion must notice. The quick tests of parity take some of these."""

import unittest

from tests.parity import bf16_test, families_test


class EveryTrait(families_test.FamiliesTest):
    """All controls of the families in fp32."""

    controls = families_test.CONTROLS


class EveryTraitInBf16(bf16_test.Bf16Test):
    """All controls in bf16."""

    controls = bf16_test.CONTROLS


def load_tests(_loader, _tests, _pattern):
    """Only the controls: the other tests of these classes run where they stand."""
    name = "test_a_reference_without_one_trait_fails"
    return unittest.TestSuite([EveryTrait(name), EveryTraitInBf16(name)])


if __name__ == "__main__":
    unittest.main()
