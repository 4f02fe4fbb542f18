#include "worker/program/files/json_fields.h"

#include "absl/strings/str_cat.h"
#include "worker/program/files/json.h"

namespace snug::program {
namespace {

using nlohmann::json;

std::string Show(const json& value) {
  if (const auto* text = value.get_ptr<const std::string*>()) return Quote(*text);
  constexpr size_t kMaxBytes = 60;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  if (text.size() > kMaxBytes) text = absl::StrCat(text.substr(0, kMaxBytes), "...");
  return text;
}

}  // namespace

const json* JsonFields::Find(const std::string& name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool JsonFields::IsNull(const std::string& name) const {
  const auto found = object_.find(name);
  return found != object_.end() && found->is_null();
}

int64_t JsonFields::Integer(const std::string& name, Range range, std::optional<int64_t> absent) {
  const json* value = Find(name);
  if (value == nullptr && absent.has_value()) return *absent;
  // The parser keeps integers beyond 64 bits as doubles, and those beyond int64 as unsigned:
  // neither passes here.
  const auto* integer = value ? value->get_ptr<const json::number_integer_t*>() : nullptr;
  const auto* natural = value ? value->get_ptr<const json::number_unsigned_t*>() : nullptr;
  const bool fits = natural ? *natural <= static_cast<uint64_t>(INT64_MAX) : integer != nullptr;
  const int64_t number = !fits ? 0 : natural ? static_cast<int64_t>(*natural) : *integer;
  if (fits && range.min <= number && number <= range.max) return number;
  Refuse(name, absl::StrCat("an integer from ", range.min, " to ", range.max));
  return 0;
}

double JsonFields::Real(const std::string& name, RealRange range, std::optional<double> absent) {
  const json* value = Find(name);
  if (value == nullptr && absent.has_value()) return *absent;
  const double number = value != nullptr && value->is_number() ? value->get<double>() : 0.0;
  const bool is_number = value != nullptr && value->is_number();
  if (is_number && range.min <= number && number <= range.max) return number;
  Refuse(name, absl::StrCat("a number from ", range.min, " to ", range.max));
  return 0.0;
}

bool JsonFields::Boolean(const std::string& name, bool absent) {
  const json* value = Find(name);
  if (value == nullptr) return absent;
  if (const auto* flag = value->get_ptr<const json::boolean_t*>()) return *flag;
  Refuse(name, "true, false");
  return absent;
}

void JsonFields::MustBe(const std::string& name, const json& accepted) {
  const json* value = Find(name);
  if (value == nullptr || *value == accepted) return;
  Refuse(name, accepted.is_null() ? "no such field" : Show(accepted));
}

void JsonFields::Refuse(const std::string& name, const std::string& accepted) {
  const json* value = Find(name);
  violations_.push_back(absl::StrCat(prefix_, name, value ? " is " : " is missing",
                                     value ? Show(*value) : "", "; accepted: ", accepted));
}

}  // namespace snug::program
