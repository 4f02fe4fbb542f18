#include "server/sim/job_classes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/check_job.h"
#include "server/job/check_spec.h"
#include "server/plan/planner.h"

namespace snug::server::sim {
namespace {

// As the daemon places with (scheduler/device_plans.cc).
constexpr size_t kMixesForPlacing = 16;
// Of a worker's CUDA context and modules.
constexpr int64_t kContextBytes = int64_t{1} << 29;
constexpr int64_t kMaxPositions = 8192;

struct Shape {
  const char* name;
  int64_t layers, width, heads, kv_heads, head_width, mlp_width, vocabulary;
  bool tied;
};

constexpr Shape kHalf = {"0.5B", 24, 896, 14, 2, 64, 4864, 151936, true};
constexpr Shape kOne = {"1B", 16, 2048, 32, 8, 64, 8192, 128256, true};
constexpr Shape kThree = {"3B", 28, 3072, 24, 8, 128, 8192, 128256, true};
constexpr Shape kEight = {"8B", 32, 4096, 32, 8, 128, 14336, 128256, false};

struct Kind {
  Shape shape;
  v1::JobSpec::Method method;
  v1::JobSpec::Quantization quantization;
  int rows;
  int tokens;  // Of the longest row.
  double weight;
};

const std::vector<Kind>& Kinds() {
  static const auto* const kinds = new std::vector<Kind>{
      {kHalf, v1::JobSpec::METHOD_LORA, v1::JobSpec::QUANTIZATION_NONE, 8, 1024, 2.0},
      {kHalf, v1::JobSpec::METHOD_FULL, v1::JobSpec::QUANTIZATION_NONE, 8, 1024, 1.0},
      {kOne, v1::JobSpec::METHOD_LORA, v1::JobSpec::QUANTIZATION_NONE, 8, 2048, 2.0},
      {kOne, v1::JobSpec::METHOD_FULL, v1::JobSpec::QUANTIZATION_NONE, 4, 2048, 1.0},
      {kThree, v1::JobSpec::METHOD_LORA, v1::JobSpec::QUANTIZATION_NONE, 4, 2048, 2.0},
      {kThree, v1::JobSpec::METHOD_LORA, v1::JobSpec::QUANTIZATION_NF4, 8, 2048, 1.0},
      {kEight, v1::JobSpec::METHOD_LORA, v1::JobSpec::QUANTIZATION_NONE, 2, 2048, 2.0},
      {kEight, v1::JobSpec::METHOD_LORA, v1::JobSpec::QUANTIZATION_NF4, 4, 1024, 1.0},
      {kEight, v1::JobSpec::METHOD_LORA, v1::JobSpec::QUANTIZATION_NF4, 4, 4096, 1.0},
  };
  return *kinds;
}

program::ModelConfig ConfigOf(const Shape& shape) {
  program::ModelConfig config;
  config.model_type = "llama";
  config.layers = shape.layers;
  config.width = shape.width;
  config.heads = shape.heads;
  config.kv_heads = shape.kv_heads;
  config.head_width = shape.head_width;
  config.mlp_width = shape.mlp_width;
  config.vocabulary = shape.vocabulary;
  config.max_positions = kMaxPositions;
  config.tied_embeddings = shape.tied;
  return config;
}

v1::JobSpec SpecOf(const Kind& kind) {
  v1::JobSpec spec;
  spec.set_method(kind.method);
  spec.set_quantization(kind.quantization);
  v1::TrainingSpec& training = *spec.mutable_training();
  training.set_per_device_train_batch_size(kind.rows);
  training.set_max_seq_length(kind.tokens);
  training.set_precision(v1::TrainingSpec::PRECISION_BF16);
  FillDefaults(spec, kMaxPositions);
  return spec;
}

std::string NameOf(const Kind& kind) {
  return absl::StrCat(
      kind.shape.name, kind.quantization == v1::JobSpec::QUANTIZATION_NF4 ? " nf4" : "",
      kind.method == v1::JobSpec::METHOD_LORA ? " lora " : " full ", kind.rows, "x", kind.tokens);
}

Frontier FrontierOf(const std::vector<v1::Plan>& plans) {
  std::vector<PlanOption> options;
  for (const v1::Plan& plan : plans)
    options.push_back({.bytes = plan.peak_bytes(), .seconds = plan.step_seconds()});
  std::stable_sort(options.begin(), options.end(), [](const PlanOption& a, const PlanOption& b) {
    return std::pair(a.seconds, a.bytes) < std::pair(b.seconds, b.bytes);
  });
  return std::make_shared<const std::vector<PlanOption>>(std::move(options));
}

}  // namespace

absl::StatusOr<std::vector<JobClass>> PlanClasses(const DeviceKind& kind, int64_t capacity_bytes) {
  const PlanMachine machine{
      .threads = 1, .gpu = true, .context_bytes = kContextBytes, .rates = kind.rates};
  const program::PlanList list{
      .recompute_plans = false, .most_mixes = kMixesForPlacing, .limits = {capacity_bytes}};
  std::vector<JobClass> classes;
  for (const Kind& each : Kinds()) {
    const v1::JobSpec spec = SpecOf(each);
    ASSIGN_OR_RETURN(const program::Program program,
                     program::BuildProgram(ConfigOf(each.shape), ModeOf(spec)));
    ASSIGN_OR_RETURN(const std::vector<v1::Plan> plans,
                     PlansFor(program, spec, RowLengths(), machine, list));
    classes.push_back({NameOf(each), each.weight, FrontierOf(plans)});
  }
  return classes;
}

}  // namespace snug::server::sim
