#include "worker/checkpoint/folder_name.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

namespace snug::checkpoint {
namespace {

template <typename Number>
bool ReadNumber(std::string_view text, Number& value) {
  return absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &value);
}

}  // namespace

std::string CheckpointName::text() const { return absl::StrFormat("step-%06d.e%d", step, epoch); }

std::optional<CheckpointName> ParseCheckpointName(std::string_view text) {
  constexpr std::string_view kPrefix = "step-";
  const size_t dot = text.find(".e");
  if (!text.starts_with(kPrefix) || dot == std::string_view::npos) return std::nullopt;
  CheckpointName name;
  if (!ReadNumber(text.substr(kPrefix.size(), dot - kPrefix.size()), name.step) ||
      !ReadNumber(text.substr(dot + 2), name.epoch)) {
    return std::nullopt;
  }
  if (name.step < 0 || name.epoch < 1 || name.text() != text) return std::nullopt;
  return name;
}

}  // namespace snug::checkpoint
