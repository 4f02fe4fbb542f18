// Small tensors with known values, folders that go with the test, and files taken whole.
#ifndef TESTS_WORKER_CHECKPOINT_TESTBED_H_
#define TESTS_WORKER_CHECKPOINT_TESTBED_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "worker/checkpoint/checkpoint.h"

namespace snug::checkpoint {

// A folder of its own, removed at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string name = std::filesystem::temp_directory_path() / "snug-checkpoint-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

// Tensors and the memory they lie in.
class Tensors {
 public:
  void AddF32(const std::string& key, std::vector<int64_t> shape, std::vector<float> values) {
    Add(key, "F32", std::move(shape), values.data(), values.size() * sizeof(float));
  }
  void AddBf16(const std::string& key, std::vector<int64_t> shape, std::vector<uint16_t> values) {
    Add(key, "BF16", std::move(shape), values.data(), values.size() * sizeof(uint16_t));
  }
  // Element i of tensor k: base + k + i / 1000.
  void AddNumbered(const std::string& key, std::vector<int64_t> shape, float base) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::vector<float> values(count);
    for (int64_t i = 0; i < count; ++i) values[i] = base + storage_.size() + i / 1000.0f;
    AddF32(key, std::move(shape), values);
  }

  const std::vector<TensorBytes>& list() const { return list_; }
  std::vector<TensorBytes>& list() { return list_; }
  std::vector<float> f32(size_t index) const {
    std::vector<float> values(list_[index].bytes / sizeof(float));
    std::memcpy(values.data(), list_[index].data, list_[index].bytes);
    return values;
  }
  std::string bytes(size_t index) const {
    return {static_cast<const char*>(list_[index].data), static_cast<size_t>(list_[index].bytes)};
  }
  void Clear() {
    for (std::vector<char>& memory : storage_) std::fill(memory.begin(), memory.end(), '\0');
  }

 private:
  void Add(const std::string& key, const std::string& dtype, std::vector<int64_t> shape,
           const void* from, size_t bytes) {
    const char* begin = static_cast<const char*>(from);
    storage_.emplace_back(begin, begin + bytes);
    list_.push_back({.key = key,
                     .dtype = dtype,
                     .shape = std::move(shape),
                     .data = storage_.back().data(),
                     .bytes = static_cast<int64_t>(bytes)});
  }

  std::vector<std::vector<char>> storage_;  // Moving a vector leaves its elements where they are.
  std::vector<TensorBytes> list_;
};

inline Tensors SmallWeights(float base) {
  Tensors weights;
  weights.AddNumbered("layers.0.lora_A.weight", {4, 16}, base);
  weights.AddNumbered("layers.0.lora_B.weight", {24, 4}, base);
  return weights;
}

inline Tensors SmallOptimizer(float base) {
  Tensors optimizer;
  for (const char* moment : {"m.", "v."}) {
    optimizer.AddNumbered(std::string(moment) + "layers.0.lora_A.weight", {4, 16}, base + 0.5f);
    optimizer.AddNumbered(std::string(moment) + "layers.0.lora_B.weight", {24, 4}, base + 0.5f);
  }
  return optimizer;
}

inline RunState StateAt(int64_t step, int32_t epoch = 1) {
  return {.job_id = "job-7f3a",
          .epoch = epoch,
          .global_step = step,
          .max_steps = 1000,
          .seed = 18446744073709551557ull,
          .data_epoch = 3,
          .data_micro_batch = 17,
          .num_tokens = 9007199254740993,
          .last_loss = 0.1 + 0.2,
          .plan_name = "recompute 2 of 6 blocks",
          .dataset_sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
          .best = {.step = 90, .metric = 0.7, .waited = 2, .checkpoint = "step-000090.e1"}};
}

// Fails the test, in words, where the status is not OK.
#define SNUG_ASSERT_OK(expr)                                                      \
  do {                                                                            \
    const auto& snug_result_ = (expr);                                            \
    ASSERT_TRUE(snug_result_.ok()) << ::snug::checkpoint::StatusOf(snug_result_); \
  } while (false)

inline absl::Status StatusOf(const absl::Status& status) { return status; }
template <typename T>
absl::Status StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

}  // namespace snug::checkpoint

#endif  // TESTS_WORKER_CHECKPOINT_TESTBED_H_
