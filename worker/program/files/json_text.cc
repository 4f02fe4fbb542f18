#include "worker/program/files/json_text.h"

#include "absl/status/status.h"

namespace snug::program {

absl::StatusOr<std::string> JsonText(const nlohmann::ordered_json& value, int indent) {
  using nlohmann::ordered_json;
  // `ignore` drops the bytes that are no UTF-8 instead of throwing; that, and a NaN turned into
  // null, shows when the text is read again.
  const std::string text = value.dump(indent, ' ', false, ordered_json::error_handler_t::ignore);
  if (ordered_json::parse(text, nullptr, /*allow_exceptions=*/false) == value) return text;
  return absl::InvalidArgumentError(
      "not fit for JSON: a name that is not UTF-8, or a number that is not finite");
}

}  // namespace snug::program
