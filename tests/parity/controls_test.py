"""The long set: every trait of every family is taken out of the reference, in fp32 and in bf16, and
every criterion must notice; and every family is compared in bf16. The quick tests of parity take
some of these."""

import unittest

from tests.parity import bf16_test, cases, families_test


class EveryTrait(families_test.FamiliesTest):
    """All controls of the families in fp32."""

    controls = families_test.CONTROLS


class EveryTraitInBf16(bf16_test.Bf16Test):
    """All cases, families and controls in bf16."""

    of_llama = cases.BF16_CASES
    families = bf16_test.FAMILIES
    controls = bf16_test.CONTROLS


def load_tests(_loader, _tests, _pattern):
    """Only what takes more here than where these classes stand."""
    in_fp32 = EveryTrait("test_a_reference_without_one_trait_fails")
    in_bf16 = unittest.defaultTestLoader.loadTestsFromTestCase(EveryTraitInBf16)
    return unittest.TestSuite([in_fp32, in_bf16])


if __name__ == "__main__":
    unittest.main()
