#include "tests/worker/execute/toy_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "tests/worker/program/begun_gradients.h"
#include "worker/execute/cpu_device.h"
#include "worker/execute/host_copy.h"

namespace snug::execute {
namespace {

using program::DType;

uint16_t ToBf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

OwnedMatrix::OwnedMatrix(int64_t r, int64_t w, DType d)
    : rows(r), width(w), dtype(d), bytes(static_cast<size_t>(r * w * program::SizeOf(d))) {}

void OwnedMatrix::FillNormal(std::mt19937& random, float mean, float deviation) {
  std::normal_distribution<float> normal(mean, deviation);
  for (int64_t i = 0; i < rows * width; ++i) {
    const float x = normal(random);
    if (dtype == DType::kF32) {
      reinterpret_cast<float*>(bytes.data())[i] = x;
    } else {
      reinterpret_cast<uint16_t*>(bytes.data())[i] = ToBf16(x);
    }
  }
}

ToyRun::ToyRun(program::Program program, std::vector<int64_t> document_lengths, uint32_t seed)
    : program_(std::move(program)), lengths_(std::move(document_lengths)) {
  std::mt19937 random(seed);
  for (const program::Parameter& parameter : program_.parameters) {
    const int64_t rows = parameter.shape.size() == 1 ? 1 : parameter.shape[0];
    const int64_t width = parameter.elements() / rows;
    values_.emplace_back(rows, width, parameter.dtype);
    const bool norm = parameter.shape.size() == 1;
    const float deviation = norm ? 0.1f : 1.0f / std::sqrt(static_cast<float>(width));
    values_.back().FillNormal(random, norm ? 1.0f : 0.0f, deviation);
    gradients_.push_back(parameter.trainable ? OwnedMatrix(rows, width, DType::kF32)
                                             : OwnedMatrix());
  }
  for (size_t i = 0; i < values_.size(); ++i) {
    views_.push_back({values_[i].view(), {}});
    if (program_.parameters[i].trainable) views_.back().gradient = gradients_[i].view();
  }
  FillBatch(random);
}

void ToyRun::FillBatch(std::mt19937& random) {
  const program::ModelConfig& config = program_.config;
  const int64_t half = config.rotary_width() / 2;
  const bool documents = config.of_documents();
  const int64_t classes = config.classifies() ? config.labels : config.vocabulary;
  const auto read = [&](int64_t length) { return config.encoder ? 0 : length - 1; };
  std::vector<int32_t> labels;
  std::vector<float> weights;
  offsets_ = {0};
  for (int64_t length : lengths_) {
    for (int64_t t = 0; t < length; ++t) {
      ids_.push_back(static_cast<int32_t>(random() % program_.config.vocabulary));
      labels.push_back(static_cast<int32_t>(random() % classes));
      weights.push_back(documents ? (t == read(length) ? 1.0f : 0.0f) : t % 3 == 1 ? 0.0f : 1.0f);
      positions_.push_back(static_cast<int32_t>(t + config.first_position));
      token_types_.push_back(config.token_types > 1 && 2 * t > length ? 1 : 0);
      for (int64_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(t) / std::pow(10000.0, static_cast<double>(i) / half);
        cos_.push_back(static_cast<float>(std::cos(angle)));
        sin_.push_back(static_cast<float>(std::sin(angle)));
        local_cos_.push_back(static_cast<float>(std::cos(3.0 * angle)));
        local_sin_.push_back(static_cast<float>(std::sin(3.0 * angle)));
      }
    }
    offsets_.push_back(static_cast<int64_t>(ids_.size()));
  }
  batch_ = {.tokens = static_cast<int64_t>(ids_.size()),
            .documents = static_cast<int64_t>(lengths_.size()),
            .ids = ids_.data(),
            .positions = positions_.data(),
            .token_types = token_types_.data(),
            .offsets = offsets_.data(),
            .device_offsets = offsets_.data(),
            .cos = cos_.data(),
            .sin = sin_.data(),
            .local_cos = local_cos_.data(),
            .local_sin = local_sin_.data()};
  trained_.emplace(labels, weights);
  trained_->PutInto(batch_);
  if (config.reversible) batch_.overflow = overflow_.data();
  if (config.has_source()) FillSources(random);
}

void ToyRun::FillSources(std::mt19937& random) {
  source_offsets_ = {0};
  for (const int64_t length : lengths_) {
    const int64_t tokens = 1 + 7 * length % 61;
    longest_source_ = std::max(longest_source_, tokens);
    for (int64_t t = 0; t < tokens; ++t)
      source_ids_.push_back(static_cast<int32_t>(random() % program_.config.vocabulary));
    source_offsets_.push_back(static_cast<int64_t>(source_ids_.size()));
  }
  batch_.source_tokens = static_cast<int64_t>(source_ids_.size());
  batch_.source_ids = source_ids_.data();
  batch_.source_offsets = source_offsets_.data();
  batch_.device_source_offsets = source_offsets_.data();
}

program::TapeKey ToyRun::key() const {
  return {.tokens = batch_.tokens,
          .documents = batch_.documents,
          .longest_document = *std::max_element(lengths_.begin(), lengths_.end()),
          // Values of the rows that a masked head reads are as high as the batch makes them here.
          .trained = program_.config.task == program::Task::kMaskedLm ? batch_.trained : 0,
          .source_tokens = batch_.source_tokens,
          .longest_source = longest_source_};
}

program::Tape ToyRun::Lower(const program::Plan& plan, bool training) const {
  return *program::Lower(program_, plan,
                         {.key = key(), .machine = {.threads = 2}, .training = training});
}

absl::StatusOr<double> ToyRun::Run(const program::Tape& tape, SlotMemory& memory,
                                   Executor& executor) {
  SpoilGradients(tape);
  return RunMicroBatch(tape, memory, executor, /*accumulate=*/false);
}

absl::StatusOr<double> ToyRun::RunMicroBatch(const program::Tape& tape, SlotMemory& memory,
                                             Executor& executor, bool accumulate) {
  // What is released is kept here, so that it can be compared.
  const auto keep = [this](int32_t parameter, const View& gradient) {
    OwnedMatrix& kept = gradients_[static_cast<size_t>(parameter)];
    return CopyMemory(TestDevice(), gradient.data, gradient.bytes(), kept.bytes.data());
  };
  const StepScalars scalars = {
      .loss_scale = 1.0 / 16, .seed = 3, .step = step_, .accumulate = accumulate};
  return executor.Run(tape, memory, batch_, scalars, keep);
}

absl::StatusOr<double> ToyRun::RunInArena(const program::Tape& tape, Device& device,
                                          int micro_batches) {
  auto memory = ArenaMemory::Allocate(device, tape.arena_bytes, tape.host_bytes);
  if (!memory.ok()) return memory.status();
  Executor executor(views_, device);
  absl::StatusOr<double> loss = Run(tape, *memory, executor);
  for (int i = 1; i < micro_batches && loss.ok(); ++i)
    loss = RunMicroBatch(tape, *memory, executor, /*accumulate=*/true);
  return loss;
}

void ToyRun::SpoilGradients(const program::Tape& tape) {
  constexpr char kNan = '\xFF';  // Of every byte.
  const std::vector<bool> begun = program::BegunGradients(tape, gradients_.size());
  for (size_t i = 0; i < gradients_.size(); ++i) {
    std::vector<char>& bytes = gradients_[i].bytes;
    std::fill(bytes.begin(), bytes.end(), begun[i] ? kNan : '\0');
  }
}

std::vector<float> ToyRun::Gradients() const {
  std::vector<float> all;
  for (const OwnedMatrix& gradient : gradients_) {
    const auto* begin = reinterpret_cast<const float*>(gradient.bytes.data());
    all.insert(all.end(), begin, begin + gradient.rows * gradient.width);
  }
  return all;
}

Device& TestDevice() {
  static CpuDevice& device = *new CpuDevice(/*threads=*/2);
  return device;
}

}  // namespace snug::execute
