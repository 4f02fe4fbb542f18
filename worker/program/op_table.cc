#include "worker/program/op_table.h"

#include <algorithm>
#include <bit>

namespace snug::program {
namespace {

constexpr uint32_t kIn0 = 1, kIn1 = 2, kIn2 = 4;
constexpr uint32_t kOut0 = kNeedsOutput, kOut1 = kNeedsOutput << 1;
constexpr bool kRowWise = true, kWhole = false;
constexpr uint16_t kOverDOut = 1;  // backward_in_place: the gradient of output 0,
constexpr uint16_t OverIn(int input) {
  return static_cast<uint16_t>(1u << (8 + input));
}  // an input.

uint32_t Nothing(Wanted) { return 0; }
uint32_t InputForParameters(Wanted w) { return w.parameters != 0 ? kIn0 : 0; }

// In the order of OpCode.
constexpr OpRow kRows[kOpCodes] = {
    {"embedding", kWhole, Nothing, 0, {}, 0},
    {"patch_embedding", kWhole, Nothing, 0, {}, 0},
    // dx = r (dxhat - xhat mean(dxhat xhat)): from the output, not the input (LowMemoryBP, MS-BP).
    {"normalize",
     kRowWise,
     [](Wanted w) { return w.inputs != 0 ? kOut0 | kOut1 : 0; },
     0,
     {kOverDOut},
     1},
    {"affine", kRowWise, InputForParameters, kIn0, {kOverDOut}, 0},
    // From the input: an xhat that is kept would be rounded, and so would a z made of it.
    {"rms_norm", kRowWise, [](Wanted) { return kIn0 | kOut1; }, kIn0, {kOverDOut}, 1},
    {.name = "linear",
     .row_wise = kRowWise,
     .needs = InputForParameters,
     .can_accumulate = 1,
     .takes_sample = kIn0},
    {.name = "lora_down",
     .row_wise = kRowWise,
     .needs = InputForParameters,
     .can_accumulate = 1,
     .takes_sample = kIn0},
    // Modules that read one z share za, and a fused one's results their columns of it.
    {"lora_linear", kRowWise, [](Wanted w) { return w.parameters != 0 ? kIn1 : 0; }, 0, {}, 3},
    // Its columns of A are gathered again; x comes from a frozen table.
    {"lora_embedding", kWhole, Nothing, kIn0, {}, 0},
    {"rope", kWhole, Nothing, kIn0, {kOverDOut}, 0},
    // What is read of q, k and v is complete when the gradient is written over it
    // (kernels/attention.h).
    {"attention",
     kWhole,
     [](Wanted) { return kIn0 | kIn1 | kIn2 | kOut0 | kOut1; },
     0,
     {OverIn(0), OverIn(1), OverIn(2)},
     0},
    {"glu",
     kRowWise,
     [](Wanted) { return kIn0 | kIn1; },
     kIn0 | kIn1,
     {static_cast<uint16_t>(OverIn(0) | kOverDOut), static_cast<uint16_t>(OverIn(1) | kOverDOut)},
     0,
     /*passes_gradient=*/0,
     /*takes_loss=*/false,
     /*takes_codes=*/kIn0,
     /*codes_beside_activation=*/true},
    {"activation",
     kRowWise,
     [](Wanted) { return kIn0; },
     kIn0,
     {static_cast<uint16_t>(OverIn(0) | kOverDOut)},
     0,
     /*passes_gradient=*/0,
     /*takes_loss=*/false,
     /*takes_codes=*/kIn0},
    // Its mask is drawn by the row's place among all rows.
    {"dropout", kRowWise, Nothing, kIn0, {kOverDOut}, 0},
    {"add", kRowWise, Nothing, kIn0 | kIn1, {}, 0, /*passes_gradient=*/kIn0 | kIn1},
    {"head_loss",
     kWhole,
     [](Wanted) { return kIn0 | kIn1; },
     0,
     {OverIn(0), OverIn(1)},
     0,
     /*passes_gradient=*/0,
     /*takes_loss=*/true},
    {"select_rows", kWhole, Nothing, 0, {}, 1},
    {"merge_rows", kWhole, Nothing, kIn0, {kOverDOut}, 0},
    {"reorder_rows", kWhole, Nothing, 0, {}, 0},
    {"mean_rows", kWhole, Nothing, 0, {}, 1},
    // Rounding counts as the identity: gradients are those of what is rounded.
    {"to_fixed", kWhole, Nothing, 0, {}, 0, /*passes_gradient=*/kIn0},
    {"from_fixed", kRowWise, Nothing, 0, {}, 0, /*passes_gradient=*/kIn0},
    {.name = "fixed_add",
     .row_wise = kWhole,
     .needs = Nothing,
     .forward_in_place = kIn0,
     .passes_gradient = kIn0 | kIn1,
     .inverse = OpCode::kFixedSubtract},
    {"quantize", kWhole, Nothing, 0, {}, 0},
    {"dequantize", kWhole, Nothing, 0, {}, 0},
    {"sample_rows", kWhole, Nothing, 0, {}, 0},
    {"fixed_subtract", kWhole, Nothing, kIn0, {}, 0},
};

double Elements(const RunShape& run, const Operand& value) {
  return static_cast<double>(run.key.Of(value.rows)) * static_cast<double>(value.width);
}

double BytesOf(const RunShape& run, const Operand& value) {
  return Elements(run, value) * static_cast<double>(SizeOf(value.dtype));
}

// A product of the run's rows, and in the backward one of the same size for each wanted gradient;
// of a sample, that of the weight has fewer terms.
struct Product {
  double in_width = 0.0, out_width = 0.0;
  Wanted wanted;  // Backward.
};

void AddProduct(const RunShape& run, const Product& product, Work& work) {
  double times = 1.0;
  if (run.direction == Direction::kBackward) {
    const double share = run.sampled == 0 ? 1.0 : static_cast<double>(run.sampled) / kWholeShare;
    times = std::popcount(product.wanted.inputs) + (product.wanted.parameters != 0 ? share : 0.0);
  }
  const auto rows = static_cast<double>(run.out_rows(0));
  const double matrix = product.in_width * product.out_width;
  const double least =
      std::min({rows / static_cast<double>(run.passes), product.in_width, product.out_width});
  const bool narrow = least < static_cast<double>(kNarrowSide);
  work[narrow ? Limit::kNarrow : Limit::kProducts] += times * 2.0 * rows * matrix;
  if (narrow) return;
  work[Limit::kMatrices] += times * static_cast<double>(run.passes * SizeOf(run.compute)) * matrix;
}

// Pairs of a query and a key that it sees: at most what as many documents of the longest length as
// the tokens fill have. Fewer tokens than that (generation): all of them see as far as they may.
double VisiblePairs(const RunShape& run) {
  const OpAttributes& a = run.op->attributes;
  const auto tokens = static_cast<double>(run.key.Of(a.query_rows));
  const auto longest = static_cast<double>(run.key.LongestOf(a.key_rows));
  const auto window = static_cast<double>(run.op->attributes.window);
  const auto side = static_cast<double>(a.order.window);
  if (a.order.side > 0) return tokens * side * side;
  const double most = window == 0.0 ? longest : std::min(longest, window);
  if (tokens < longest || !run.op->attributes.causal) return tokens * most;
  return tokens / longest * (most * longest - most * (most - 1.0) / 2.0);
}

// Logits are written and read, and with gradients once more each. Then the forward's product comes
// first. Beside an adapter the matrix is frozen. On a CPU products of a pass take so long that they
// hide that the matrix is arranged anew; a GPU reads it anew about as long as it computes.
void AddHead(const RunShape& run, Work& work) {
  const auto width = static_cast<double>(run.in[0].width);
  const auto rank = static_cast<double>(run.op->attributes.rank);
  const auto vocabulary = static_cast<double>(HeadRows(run));
  const Rows of_loss = LossRows(*run.op, run.in[0].rows);
  const auto rows = static_cast<double>(run.key.Of(of_loss));
  RunShape forward = run;
  forward.direction = Direction::kForward;
  forward.out[0].rows = of_loss;  // Those of the products.
  if (run.cpu) forward.passes = 1;
  RunShape backward = forward;
  backward.direction = Direction::kBackward;
  const bool trains = run.direction == Direction::kBackward;
  AddProduct(forward, {width, vocabulary, {}}, work);
  work[Limit::kPasses] += (trains ? 4.0 : 2.0) * sizeof(float) * rows * vocabulary;
  Wanted of_base = run.wanted, of_adapter = {.inputs = kIn0, .parameters = 1};
  of_base.inputs &= kIn0;
  if (rank > 0.0) {
    of_base.parameters = 0;
    AddProduct(forward, {rank, vocabulary, {}}, work);
    if (trains) AddProduct(backward, {rank, vocabulary, of_adapter}, work);
  }
  if (trains) AddProduct(backward, {width, vocabulary, of_base}, work);
}

// Whether they are all: what else such an op reads and writes is hidden behind them.
bool AddProducts(const RunShape& run, Work& work) {
  const auto width = [](const Operand& value) { return static_cast<double>(value.width); };
  const Op& op = *run.op;
  const auto rank = static_cast<double>(op.attributes.rank);
  switch (op.code) {
    case OpCode::kLinear:
    case OpCode::kLoraDown:
      AddProduct(run, {width(run.in[0]), width(run.out[0]), run.wanted}, work);
      return true;
    case OpCode::kPatchEmbedding:
      AddProduct(run,
                 {static_cast<double>(op.attributes.patch_width), width(run.out[0]), run.wanted},
                 work);
      return true;
    case OpCode::kLoraLinear: {  // The frozen product has dz alone, the adapter's dza and dB.
      Wanted base = run.wanted, up = run.wanted;
      base.parameters = 0;
      base.inputs &= kIn0;
      up.inputs &= kIn1;
      AddProduct(run, {width(run.in[0]), width(run.out[0]), base}, work);
      AddProduct(run, {rank, width(run.out[0]), up}, work);
      return true;
    }
    case OpCode::kAttention: {  // Two products forward, five backward, of what is visible.
      const double products = run.direction == Direction::kForward ? 2.0 : 5.0;
      work[Limit::kAttention] += 2.0 * products * VisiblePairs(run) * width(run.in[0]);
      return true;
    }
    case OpCode::kLoraEmbedding:  // Backward: dB and dza.
      AddProduct(run, {rank, width(run.out[0]), {.inputs = kIn0, .parameters = 1}}, work);
      return false;  // It gathers rows as well.
    case OpCode::kHeadLoss:
      AddHead(run, work);
      return true;
    default:
      return false;
  }
}

}  // namespace

const OpRow& RowOf(OpCode code) { return kRows[static_cast<int>(code)]; }

const Op& InverseOf(const Op& op) {
  static const auto* inverses = [] {
    auto* ops = new std::array<Op, kOpCodes>;
    for (size_t code = 0; code < ops->size(); ++code) {
      if (!kRows[code].inverse.has_value()) continue;
      const OpCode inverse = *kRows[code].inverse;
      (*ops)[code] = {inverse, RowOf(inverse).name, {0, 1}, {2}, {}, {}};
    }
    return ops;
  }();
  return (*inverses)[static_cast<size_t>(op.code)];
}

double SecondsOf(const Work& work, const Machine& machine) {
  const double starts = work[Limit::kRuns] / machine.rates[Limit::kRuns];
  double works = 0.0;
  for (size_t i = 0; i < static_cast<size_t>(Limit::kRuns); ++i)
    works += work.amounts[i] / machine.rates.per_second[i];
  return machine.cpu ? starts + works : std::max(starts, works);
}

Work WorkOf(const RunShape& run) {
  Work work;
  work[Limit::kRuns] = static_cast<double>(run.passes);
  if (AddProducts(run, work)) return work;
  double bytes = 0.0;
  for (size_t i = 0; i < run.op->inputs.size(); ++i) bytes += BytesOf(run, run.in[i]);
  for (size_t i = 0; i < run.op->outputs.size(); ++i) bytes += BytesOf(run, run.out[i]);
  work[Limit::kPasses] = run.direction == Direction::kForward ? bytes : 2.0 * bytes;
  return work;
}

}  // namespace snug::program
