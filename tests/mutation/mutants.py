"""Small mistakes, planted into the kernels one at a time by run.py; a test has to notice each.

"gaps": once no test noticed these. "loops": the CPU's inner loops, as AVX2 and AVX-512 have them.
Each is planted in what is compiled for the instruction sets that it names, and nowhere else.

An object is "avx512:rows" (kernels/cpu/loops/rows.cc for that set), "cpu:sampling"
(kernels/cpu/sampling.cc), "cuda:rows" (kernels/cuda/rows.cu, emulated) or "test:rows_test" (the
test's own, where it includes what is changed).
"""

from dataclasses import dataclass

EVERY_SET = ("baseline", "avx2", "avx512", "avx512bf16")
AVX2 = ("avx2",)
AVX512 = ("avx512", "avx512bf16")
BF16 = ("avx512bf16",)

LOOPS = "kernels/cpu/loops/"


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str  # Occurs once in the file.
    new: str
    objects: tuple
    tests: tuple  # Targets without "kernels_"; each of them has to fail.
    group: str = "loops"


def loops(sets, *sources):
    """Objects of these inner loops for these sets."""
    return tuple(f"{isa}:{source}" for isa in sets for source in sources)


def emulated(test):
    """The test on the CPU and on the emulated GPU."""
    return (test, f"{test}_cuda_on_cpu")


def gap(*fields):
    return Mutant(*fields, group="gaps")


GAPS = (
    gap(
        "the block's number loses bits 32 to 39",
        "kernels/philox.h",
        "static_cast<uint32_t>(block >> 32) | (site.op << 8)",
        "(site.op << 8)",
        ("cuda:dropout", "test:dropout_test"),
        emulated("dropout_test"),
    ),
    gap(
        "vectors' block numbers lose bits 32 to 39",
        LOOPS + "random.h",
        "block >> 32 | (uint64_t{site.op} << 8)",
        "U64x8{} + (uint64_t{site.op} << 8)",
        loops(EVERY_SET, "dropout"),
        ("dropout_test",),
    ),
    gap(
        "the first row's place in 32 bits",
        "kernels/cuda/attention_plan.cuh",
        "range.first * stride +",
        "static_cast<int32_t>(range.first * stride) +",
        ("cuda:attention", "cuda:attention_backward"),
        ("far_rows_test_cuda_on_cpu",),
    ),
    gap(
        "the softcap hides an infinite logit",
        "kernels/cuda/cross_entropy.cu",
        "probe += logits.at[i] * 0.0f",
        "probe += x.at[i] * 0.0f",
        ("cuda:cross_entropy",),
        ("cross_entropy_test_cuda_on_cpu",),
    ),
    gap(
        "an ignored label of a class counts, CPU",
        LOOPS + "cross_entropy.cc",
        "return label == p.ignore_label ? -1 : label",
        "return label == p.ignore_label && label < 0 ? -1 : label",
        loops(EVERY_SET, "cross_entropy"),
        ("cross_entropy_options_test",),
    ),
    gap(
        "an ignored label of a class counts, CUDA",
        "kernels/cuda/cross_entropy.cu",
        "if (label == p.ignore_label) return -1",
        "if (label == p.ignore_label && label < 0) return -1",
        ("cuda:cross_entropy",),
        ("cross_entropy_options_test_cuda_on_cpu",),
    ),
    gap(
        "an octave of fixed-point numbers is cut, not rounded",
        LOOPS + "reversible.cc",
        "Mask(magnitude - 0x4b000000u)",
        "Mask(magnitude - 0x4a800000u)",
        loops(EVERY_SET, "reversible"),
        ("reversible_test",),
    ),
    gap(
        "ties of NF4 go to the upper level",
        "kernels/nf4_levels.h",
        "code += x > bounds.at[k] ? 1u : 0u",
        "code += x >= bounds.at[k] ? 1u : 0u",
        ("cuda:nf4", "test:nf4_test"),
        emulated("nf4_test"),
    ),
    gap(
        "a wide load one element past the row",
        "kernels/cuda/eights.cuh",
        "if (kAligned && at.Holds(kEight - 1)) return Load",
        "if (kAligned && at.Holds(kEight - 2)) return Load",
        ("cuda:activation", "cuda:codes", "cuda:glu"),
        ("layouts_test_cuda_on_cpu",),
    ),
    gap(
        "the mean of the scores over one row too many",
        "kernels/sampling_rules.h",
        "(all.sum / all.count)",
        "(all.sum / (all.count + 1))",
        ("cpu:sampling", "cuda:sampling"),
        emulated("sampling_test"),
    ),
    gap(
        "a number type behind the last is taken",
        "kernels/cpu/check.h",
        "dtype <= DType::kF16",
        "dtype <= static_cast<DType>(3)",
        ("cpu:dropout", "cpu:glu", "cpu:rows"),
        ("refusals_test",),
    ),
)

AVX2_LOOPS = (
    Mutant(
        "avx2: exp is 0 from -86 on",
        LOOPS + "exp.h",
        "kFirst = 0xc2ae0001u",
        "kFirst = 0xc2ac0001u",
        loops(AVX2, "activation"),
        ("same_bits_test",),
    ),
    Mutant(
        "avx2: exp of a NaN is 0",
        LOOPS + "exp.h",
        "(place - kBits) & ~place) >> 31",
        "~place) >> 31",
        loops(AVX2, "activation"),
        ("same_bits_test",),
    ),
    Mutant(
        "avx2: the minimum of the other side",
        LOOPS + "activations.h",
        "Select(SignMask(x - limit), x, Splat(limit))",
        "Select(SignMask(limit - x), x, Splat(limit))",
        loops(AVX2, "activation"),
        ("same_bits_test",),
    ),
    Mutant(
        "avx2: a NaN has a code above 0",
        LOOPS + "codes.h",
        "Gathered<2>(-(above & ~NanMask(x)))",
        "Gathered<2>(-above)",
        loops(AVX2, "activation"),
        ("same_bits_test",),
    ),
    Mutant(
        "avx2: squares off the diagonal stay",
        LOOPS + "transpose.h",
        "{squares[0][row / kSide][row % kSide], squares[1][row / kSide][row % kSide]}",
        "{squares[row / kSide][0][row % kSide], squares[row / kSide][1][row % kSide]}",
        loops(AVX2, "product"),
        ("attention_test",),
    ),
    Mutant(
        "avx2: a level of the next lane",
        LOOPS + "frozen_values.h",
        "found[lane] = from[at[lane]]",
        "found[lane] = from[at[lane & 14]]",
        loops(AVX2, "frozen_weight"),
        ("same_bits_test",),
    ),
    Mutant(
        "avx2: a decade begins beyond its edge",
        LOOPS + "dynamic_code.h",
        """    const I32x16 reached = SignMask(edges.edge[i] - magnitude);
    decade.per_unit""",
        """    const I32x16 reached = SignMask(edges.edge[i] * 1.001f - magnitude);
    decade.per_unit""",
        loops(AVX2, "adamw_codes"),
        ("same_bits_test",),
    ),
    Mutant(
        "avx2: upper halves of words enter a product",
        LOOPS + "random.h",
        "return (x & uint64_t{0xffffffff}) * by",
        "return x * by",
        loops(AVX2, "dropout"),
        ("dropout_test",),
    ),
    Mutant(
        "avx2: two blocks of random words change places",
        LOOPS + "random.h",
        "__builtin_shuffle(a, b, Order{2, 6, 3, 7})",
        "__builtin_shuffle(a, b, Order{3, 7, 2, 6})",
        loops(AVX2, "uniform_noise"),
        ("uniform_noise_test",),
    ),
    Mutant(
        "avx2: the code of a NaN saturates",
        LOOPS + "widths.h",
        "all << 24 >> 24",
        "all",
        loops(AVX2, "frozen_weight"),
        ("int8_weight_test",),
    ),
    Mutant(
        "avx2: the upper eight bytes are read twice",
        LOOPS + "widths.h",
        "_mm256_cvtepi8_epi32(_mm_bsrli_si128(all, 8))",
        "_mm256_cvtepi8_epi32(all)",
        loops(AVX2, "frozen_weight"),
        ("int8_weight_test",),
    ),
    Mutant(
        "avx2: codes of the upper four lanes are lost",
        LOOPS + "widths.h",
        "LowestBytes(v.low) | LowestBytes(v.high) << 32",
        "LowestBytes(v.low)",
        loops(AVX2, "activation"),
        ("codes_test",),
    ),
    Mutant(
        "avx2: bf16 rounds ties away from zero",
        LOOPS + "lanes.h",
        "(bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u",
        "(bits + 0x8000u) & 0xffff0000u",
        loops(AVX2, "rows"),
        ("same_bits_test",),
    ),
    Mutant(
        "avx2: a NaN becomes bf16's infinity",
        LOOPS + "lanes.h",
        "(0x7fc00000u & nan)",
        "(0x7f800000u & nan)",
        loops(AVX2, "rows"),
        ("same_bits_test",),
    ),
    Mutant(
        "avx2: fp16's infinity is read as a number",
        LOOPS + "lanes.h",
        "(112u << 23) + (beyond & (112u << 23))",
        "(112u << 23)",
        loops(AVX2, "rows"),
        ("same_bits_test",),
    ),
    Mutant(
        "avx2: fp16 rounds ties down",
        LOOPS + "lanes.h",
        "magnitude + 0xfffu + (magnitude >> 13 & 1u)",
        "magnitude + 0xfffu",
        loops(AVX2, "rows"),
        ("same_bits_test",),
    ),
    Mutant(
        "avx2: what fp16 cannot hold gets bits of a NaN",
        LOOPS + "lanes.h",
        "finite = below(0x47800000u)",
        "finite = below(0x47810000u)",
        loops(AVX2, "rows"),
        ("same_bits_test",),
    ),
    Mutant(
        "avx2: half a streamed line is left out",
        LOOPS + "output.h",
        "for (int64_t i = 0; i < bytes; i += sizeof(StreamedPiece))",
        "for (int64_t i = 0; i < bytes; i += 2 * sizeof(StreamedPiece))",
        loops(AVX2, "rows"),
        ("same_bits_test",),
    ),
    Mutant(
        "avx2: rows that do not fill the registers are left out",
        LOOPS + "product.cc",
        "if (m < p.rows) Rows<kPairs, kM / 2, kN>(p, m, b, c);",
        "if (m + 1 < p.rows) Rows<kPairs, kM / 2, kN>(p, m, b, c);",
        loops(AVX2, "product"),
        ("attention_test",),
    ),
)

AVX512_LOOPS = (
    Mutant(
        "avx512: exp is 0 from -86 on",
        LOOPS + "exp.h",
        "reinterpret_cast<__m512>(Splat(-87.0f))",
        "reinterpret_cast<__m512>(Splat(-86.0f))",
        loops(AVX512, "activation"),
        ("same_bits_test",),
    ),
    Mutant(
        "avx512: exp of a NaN is 0",
        LOOPS + "exp.h",
        "_CMP_NLT_UQ",
        "_CMP_GE_OQ",
        loops(AVX512, "softmax"),
        ("softmax_test",),
    ),
    Mutant(
        "avx512: the larger, not the smaller",
        LOOPS + "activations.h",
        "_mm512_maskz_min_ps(kAll",
        "_mm512_maskz_max_ps(kAll",
        loops(AVX512, "activation"),
        ("same_bits_test",),
    ),
    Mutant(
        "avx512: a threshold itself lies above",
        LOOPS + "codes.h",
        "_CMP_GT_OQ",
        "_CMP_GE_OQ",
        loops(AVX512, "activation"),
        ("codes_test",),
    ),
    Mutant(
        "avx512: codes of two lanes change places",
        LOOPS + "codes.h",
        "v = (v | v << 1) & 0x5555555555555555u",
        "v = (v | v << 1) & 0x5555555555555556u",
        loops(AVX512, "activation"),
        ("codes_test",),
    ),
    Mutant(
        "avx512: bytes are read with a sign",
        LOOPS + "widths.h",
        "_mm512_maskz_cvtepu8_epi32",
        "_mm512_maskz_cvtepi8_epi32",
        loops(AVX512, "softmax"),
        ("softmax_test",),
    ),
    Mutant(
        "avx512: int8 is read without a sign",
        LOOPS + "widths.h",
        "_mm512_maskz_cvtepi8_epi32",
        "_mm512_maskz_cvtepu8_epi32",
        loops(AVX512, "frozen_weight"),
        ("int8_weight_test",),
    ),
    Mutant(
        "avx512: bf16's last lane is the one before it",
        LOOPS + "lanes.h",
        "0, 14, 0, 15}",
        "0, 14, 0, 14}",
        loops(AVX512, "rows"),
        ("rows_test",),
    ),
    Mutant(
        "avx512: bf16's first lane has bits of its own below",
        LOOPS + "lanes.h",
        "0xaaaaaaaa",
        "0xaaaaaaab",
        loops(AVX512, "rows"),
        ("rows_test",),
    ),
    Mutant(
        "avx512bf16: subnormals are rounded by the machine",
        LOOPS + "lanes.h",
        "0x20 | 0x01 | 0x80",
        "0x01 | 0x80",
        loops(BF16, "rows"),
        ("same_bits_test",),
    ),
    Mutant(
        "avx512bf16: odd lanes are rounded by the machine",
        LOOPS + "pairs.h",
        "(RoundsOtherwise(v.even) | RoundsOtherwise(v.odd)) == 0",
        "RoundsOtherwise(v.even) == 0",
        loops(BF16, "activation"),
        ("same_bits_test",),
    ),
    Mutant(
        "avx512: a block off the diagonal stays",
        LOOPS + "transpose.h",
        "if constexpr (kHalf > 1)",
        "if constexpr (kHalf > 2)",
        loops(AVX512, "product"),
        ("attention_test",),
    ),
    Mutant(
        "avx512: a level of the lane beside it",
        LOOPS + "frozen_values.h",
        "return __builtin_shuffle(table, index);",
        "return __builtin_shuffle(table, index ^ 1);",
        loops(AVX512, "frozen_weight"),
        ("same_bits_test",),
    ),
    Mutant(
        "avx512: numbers beyond an edge keep the decade before it",
        LOOPS + "dynamic_code.h",
        "Entry<I32x16>(tables.below, exponent) - reached;",
        "Entry<I32x16>(tables.below, exponent);",
        loops(AVX512, "adamw_codes"),
        ("same_bits_test",),
    ),
    Mutant(
        "avx512bf16: the last pair of terms loses its second",
        LOOPS + "frozen_panels.cc",
        "n + 1 < t.terms.end ? Weight",
        "n + 2 < t.terms.end ? Weight",
        loops(BF16, "frozen_panels"),
        ("frozen_linear_test",),
    ),
)

ALL = GAPS + AVX2_LOOPS + AVX512_LOOPS
