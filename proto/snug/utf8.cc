#include "proto/snug/utf8.h"

#include "nlohmann/json.hpp"

namespace snug {

std::string ValidUtf8(absl::string_view text) {
  using nlohmann::json;
  const std::string quoted =
      json(std::string(text)).dump(-1, ' ', false, json::error_handler_t::replace);
  return json::parse(quoted, nullptr, /*allow_exceptions=*/false).get<std::string>();
}

}  // namespace snug
