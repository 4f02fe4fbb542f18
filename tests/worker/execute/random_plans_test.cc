// Models, batches and plans drawn at random and run for real: what a plan promises of gradients and
// of bytes, of whatever families, modes and kinds meet. SNUG_RANDOM_PLANS says how many.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/worker/execute/counting_source.h"
#include "tests/worker/execute/separate_memory.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/program/models.h"
#include "worker/program/replay.h"
#include "worker/weights/quantized_weight.h"

namespace snug::execute {
namespace {

using program::DType;
using program::Plan;
using program::Program;
using program::Quantization;
using program::SiteStash;
using program::Stash;
using program::Tape;
using program::TrainingMode;

// A source of draws that reads like what is drawn.
class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}
  int64_t Between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }
  bool OneIn(int64_t n) { return Between(1, n) == 1; }
  template <typename T>
  const T& Of(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(Between(0, static_cast<int64_t>(choices.size()) - 1))];
  }
  std::mt19937& random() { return random_; }

 private:
  std::mt19937 random_;
};

program::ModelConfig DrawModel(Draw& draw) {
  std::vector<std::string> families = program::FamilyNames();
  families.insert(families.end(), {"llama", "bert", "roberta", "distilbert", "t5", "reversible"});
  const std::string& family = draw.Of(families);
  // A fused matrix is quantised in parts that begin at groups of scales, of 64 x 256 elements.
  const int64_t heads = draw.Of<int64_t>({2, 4}), kv_heads = draw.OneIn(2) ? heads : 2;
  const int64_t width = family == "phi3" ? 128 : heads * draw.Of<int64_t>({8, 16, 24});
  program::LlamaSizes sizes = {draw.Between(1, 4),
                               width,
                               heads,
                               kv_heads,
                               family == "phi3" ? 128 : 4 * draw.Between(4, 30),
                               draw.Between(20, 300)};
  if (family == "phi3") sizes.kv_heads = heads;
  if (family == "llama") return program::LlamaShape(sizes);
  const bool encodes = family == "roberta" || family.ends_with("bert");
  if (family == "reversible") {
    program::ModelConfig config = program::LlamaShape(sizes);
    config.reversible = true;
    return config;
  }
  if (!encodes && family != "t5") return program::FamilyShape(family, sizes);
  sizes.kv_heads = heads;
  if (family == "t5") {
    sizes.layers = draw.Between(2, 4);
    return program::T5Shape(draw.OneIn(2), sizes, draw.Between(1, sizes.layers - 1));
  }
  return draw.OneIn(2) ? program::EncoderShape(family, sizes) : program::MaskedShape(family, sizes);
}

TrainingMode DrawMode(const program::ModelConfig& config, Draw& draw) {
  const DType compute = draw.OneIn(3) ? DType::kBF16 : DType::kF32;
  TrainingMode mode = program::FullMode(compute);
  if (draw.OneIn(2)) {
    mode = program::LoraMode({"all-linear"}, compute);
    mode.adapter.rank = draw.Between(1, 8);
    if (draw.OneIn(2)) mode.adapter.dropout = 0.25;
    if (config.reversible) mode.adapter.alpha = 1.0;  // Its streams stay within their range.
    if (config.classifies()) mode.adapter.modules_to_save = {"classifier"};
    if (!config.encoder && draw.OneIn(3))
      mode.quantization = draw.OneIn(2) ? Quantization::kNf4 : Quantization::kInt8;
  }
  mode.release_gradients = draw.OneIn(3);
  return mode;
}

std::vector<int64_t> DrawDocuments(Draw& draw) {
  std::vector<int64_t> lengths(static_cast<size_t>(draw.Between(1, 5)));
  for (int64_t& length : lengths)
    length = draw.OneIn(4) ? draw.Between(30, 58) : draw.Between(1, 20);
  return lengths;
}

// Frozen weights become codes, where the mode says so.
std::deque<weights::QuantizedWeight> Quantise(ToyRun& run) {
  std::deque<weights::QuantizedWeight> made;
  for (size_t i = 0; i < run.program().parameters.size(); ++i) {
    const program::Parameter& parameter = run.program().parameters[i];
    if (parameter.quantization == Quantization::kNone) continue;
    View& value = run.parameters()[i].value;
    const auto read = [&](int64_t first, const View& piece) {
      std::memcpy(piece.data, value.as<char>() + first * program::SizeOf(value.dtype),
                  static_cast<size_t>(piece.bytes()));
      return absl::OkStatus();
    };
    made.push_back(weights::QuantizedWeight::Allocate(TestDevice(), parameter).value());
    EXPECT_TRUE(made.back().Fill(TestDevice(), parameter, read).ok());
    value.data = made.back().data();
    value.quantized = &made.back().weight();
  }
  return made;
}

// Plans of exact kinds alone, of these without loops, or of any.
enum class Kinds { kSameBits, kExact, kAny };

Plan DrawPlan(const Program& program, Kinds kinds, Draw& draw) {
  Plan plan = RandomPlan(program, static_cast<int>(draw.Between(1, 3)), draw.random(),
                         /*segments=*/draw.OneIn(2),
                         kinds == Kinds::kSameBits ? 3 : size_t{program::kStashes});
  if (kinds != Kinds::kExact) return plan;
  for (std::vector<SiteStash>& recipe : plan.recipes) {
    for (SiteStash& stash : recipe) {
      if (program::RowOf(stash.kind).fidelity != program::Fidelity::kExact)
        stash = {Stash::kChunk, static_cast<int32_t>(draw.Between(1, 40))};
    }
  }
  return plan;
}

double RelativeError(const std::vector<float>& got, const std::vector<float>& exact) {
  double error = 0.0, norm = 0.0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(got[i] - exact[i], 2);
    norm += std::pow(exact[i], 2);
  }
  return std::sqrt(error / norm);
}

int64_t HostPeak(const Tape& tape) {
  int64_t peak = 0;
  for (const program::LiveBytes& live : Timeline(tape)) peak = std::max(peak, live.host);
  return peak;
}

struct Outcome {
  double loss = 0.0;
  std::vector<float> gradients, of_two;  // Of a micro-batch, and of two.
};

// In an arena, and each value by itself between guard zones: the same bits, in the tape's bytes.
void RunBothWays(ToyRun& run, const Tape& tape, Outcome* outcome) {
  const auto twice = run.RunInArena(tape, TestDevice(), /*micro_batches=*/2);
  ASSERT_TRUE(twice.ok()) << twice.status();
  outcome->of_two = run.Gradients();
  const auto loss = run.RunInArena(tape, TestDevice());
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_EQ(*twice, *loss);
  outcome->loss = *loss;
  outcome->gradients = run.Gradients();
  CountingSource source, host;
  SeparateMemory memory(source, host);
  Executor executor(run.parameters(), TestDevice());
  const auto apart = run.Run(tape, memory, executor);
  ASSERT_TRUE(apart.ok()) << apart.status();
  EXPECT_EQ(*apart, *loss);
  EXPECT_EQ(run.Gradients(), outcome->gradients);
  EXPECT_EQ(source.peak(), ReplayTape(tape).peak.total());
  EXPECT_EQ(host.peak(), HostPeak(tape));
  EXPECT_LE(source.peak(), tape.arena_bytes);
  EXPECT_LE(host.peak(), tape.host_bytes);
}

struct Moved {
  double loss = 0.0;       // By so much.
  double gradients = 0.0;  // RelativeError.
};

// How far both go where each second number of the first table is a neighbour of what it was: a
// model drawn at random may make much of little, as softmax of far scores does.
Moved WhatRoundingDoes(ToyRun& run, const Outcome& keep) {
  View& table = run.parameters().front().value;
  const int64_t count = run.program().parameters.front().elements();
  const int64_t size = program::SizeOf(table.dtype);
  const std::vector<char> numbers(table.as<char>(), table.as<char>() + count * size);
  Moved most;
  std::mt19937 random(1);
  for (int draw = 0; draw < 3; ++draw) {
    for (int64_t i = 0; i < count; ++i)
      if (random() % 2 == 0) table.as<char>()[i * size] ^= 1;  // The last bit, in little endian.
    Outcome moved;
    RunBothWays(run, run.Lower(RecomputePlan(run.program(), 0)), &moved);
    most.loss = std::max(most.loss, std::abs(moved.loss - keep.loss));
    most.gradients = std::max(most.gradients, RelativeError(moved.gradients, keep.gradients));
    std::copy(numbers.begin(), numbers.end(), table.as<char>());
  }
  return most;
}

void ExpectTheLossOf(ToyRun& run, const Outcome& keep, const Outcome& got) {
  const bool f32 = run.program().compute == DType::kF32;
  const double usual = (f32 ? 1e-5 : 1e-2) * std::abs(keep.loss);
  const bool is_usual = std::abs(got.loss - keep.loss) <= usual;
  EXPECT_NEAR(got.loss, keep.loss, is_usual ? usual : 10 * WhatRoundingDoes(run, keep).loss);
}

// Rounding alone lies between them: where products sum in another order, and dropout and deep
// adapters make more of it.
void ExpectWithinRounding(ToyRun& run, const Outcome& got, const Outcome& keep) {
  const bool f32 = run.program().compute == DType::kF32;
  ExpectTheLossOf(run, keep, got);
  const double error = RelativeError(got.gradients, keep.gradients), usual = f32 ? 5e-3 : 0.15;
  const double limit = error < usual ? usual : 10 * WhatRoundingDoes(run, keep).gradients;
  EXPECT_LT(error, limit);
}

// A tape with room for more than the batch: of each coordinate, where the model has such rows.
Tape RoomierTape(const ToyRun& run, const Plan& plan, Draw& draw) {
  program::TapeKey key = run.key();
  for (int64_t* size : {&key.tokens, &key.documents, &key.longest_document, &key.trained,
                        &key.source_tokens, &key.longest_source}) {
    if (*size > 0) *size += draw.Between(0, 9);
  }
  return *program::Lower(run.program(), plan, {.key = key, .machine = {.threads = 2}});
}

// Ops run at true sizes, but for loops, whose passes are as high as the tape has room for.
void ExpectTheSameOnARoomierTape(ToyRun& run, const Tape& tape, const Outcome& exact,
                                 bool same_bits) {
  const auto loss = run.RunInArena(tape, TestDevice());
  ASSERT_TRUE(loss.ok()) << loss.status();
  if (same_bits) {
    EXPECT_EQ(*loss, exact.loss);
    EXPECT_EQ(run.Gradients(), exact.gradients);
  } else {
    ExpectWithinRounding(run, {.loss = *loss, .gradients = run.Gradients()}, exact);
  }
}

std::string Describe(const ToyRun& run) {
  const Program& program = run.program();
  return absl::StrCat(program.config.model_type, ", ", program.config.layers, " layers, ",
                      program.compute == DType::kF32 ? "fp32" : "bf16");
}

void RunOne(uint32_t seed) {
  Draw draw(seed);
  program::ModelConfig config = DrawModel(draw);
  const TrainingMode mode = DrawMode(config, draw);
  // As of files that leave out some modules, of all layers or of one.
  if (draw.OneIn(2)) config.in_floats = {"down_proj", "wo", "model.layers.1.self_attn"};
  const auto program = BuildProgram(config, mode);
  ASSERT_TRUE(program.ok()) << program.status();
  ToyRun run(*program, DrawDocuments(draw), seed);
  SCOPED_TRACE(Describe(run));
  const auto weights = Quantise(run);
  Outcome keep, other;
  RunBothWays(run, run.Lower(RecomputePlan(*program, 0)), &keep);
  const Kinds kinds = draw.Of<Kinds>({Kinds::kSameBits, Kinds::kExact, Kinds::kAny});
  const Plan plan = DrawPlan(*program, kinds, draw);
  RunBothWays(run, run.Lower(plan), &other);
  if (kinds == Kinds::kSameBits) {
    EXPECT_EQ(other.loss, keep.loss);
    EXPECT_EQ(other.gradients, keep.gradients);
    EXPECT_EQ(other.of_two, keep.of_two);
  } else if (kinds == Kinds::kExact) {
    ExpectWithinRounding(run, other, keep);
  } else {
    EXPECT_TRUE(std::all_of(other.gradients.begin(), other.gradients.end(),
                            [](float x) { return std::isfinite(x); }));
    ExpectTheLossOf(run, keep, other);  // Whatever backward has, forward had the values.
  }
  if (kinds != Kinds::kAny)
    ExpectTheSameOnARoomierTape(run, RoomierTape(run, plan, draw), other,
                                kinds == Kinds::kSameBits);
  const bool releases =
      std::any_of(program->parameters.begin(), program->parameters.end(),
                  [](const program::Parameter& parameter) { return parameter.released; });
  if (releases) return;  // Of the last micro-batch alone.
  std::vector<float> doubled = other.gradients;
  for (float& x : doubled) x *= 2;
  EXPECT_LT(RelativeError(other.of_two, doubled), 1e-5);
}

TEST(RandomPlansTest, GradientsAndBytesAreAsPromised) {
  int plans = 200;
  const char* asked = std::getenv("SNUG_RANDOM_PLANS");
  ASSERT_TRUE(asked == nullptr || absl::SimpleAtoi(asked, &plans)) << asked;
  for (int seed = 1; seed <= plans && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RunOne(static_cast<uint32_t>(seed));
  }
}

}  // namespace
}  // namespace snug::execute
