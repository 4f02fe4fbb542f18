// step-000123.e1: the folder of a checkpoint. The epoch keeps two attempts from ever sharing a
// path.
#ifndef WORKER_CHECKPOINT_FOLDER_NAME_H_
#define WORKER_CHECKPOINT_FOLDER_NAME_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace snug::checkpoint {

// Behind the name of a folder that is still being written.
inline constexpr char kUnfinished[] = ".tmp";

struct CheckpointName {
  int64_t step = 0;
  int32_t epoch = 0;

  std::string text() const;  // Six digits for the step, more where it has more.
  auto operator<=>(const CheckpointName&) const = default;  // By step, then by epoch.
};

// None for anything but what text() gives.
std::optional<CheckpointName> ParseCheckpointName(std::string_view text);

}  // namespace snug::checkpoint

#endif  // WORKER_CHECKPOINT_FOLDER_NAME_H_
