#include "worker/train/static_bytes.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace snug::train {
namespace {

struct Component {
  const char* name;
  int64_t program::Components::*bytes;
};

constexpr Component kHeld[] = {
    {"weights", &program::Components::weights},     {"adapter", &program::Components::adapter},
    {"gradients", &program::Components::gradients}, {"optimizer", &program::Components::optimizer},
    {"inputs", &program::Components::inputs},       {"arena", &program::Components::arena},
    {"host", &program::Components::host}};

}  // namespace

absl::Status CheckSameBytes(const BytesBy& one, const BytesBy& other) {
  std::string differences;
  for (const Component& component : kHeld) {
    const int64_t first = one.bytes.*component.bytes, second = other.bytes.*component.bytes;
    if (first == second) continue;
    absl::StrAppend(&differences, differences.empty() ? "" : "; ", component.name, ": ", first,
                    " bytes by ", one.whom, ", ", second, " by ", other.whom);
  }
  return differences.empty() ? absl::OkStatus() : absl::InternalError(differences);
}

}  // namespace snug::train
