#include "worker/program/files/json.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/snug/status_macros.h"
#include "worker/program/files/regular_file.h"

namespace snug::program {
namespace {

using nlohmann::json;

constexpr size_t kMaxQuotedBytes = 100;
constexpr size_t kMaxErrorBytes = 200;

// Never ends inside a UTF-8 sequence: messages travel in protobuf strings, which refuse half a
// character.
std::string Cut(const std::string& text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

// Walks the text without keeping it, so that nothing outside the limits is ever built.
class LimitChecker : public json::json_sax_t {
 public:
  explicit LimitChecker(const JsonLimits& limits) : limits_(limits) {}

  const std::string& problem() const { return problem_; }

  bool null() override { return Count(); }
  bool boolean(bool) override { return Count(); }
  bool number_integer(json::number_integer_t) override { return Count(); }
  bool number_unsigned(json::number_unsigned_t) override { return Count(); }
  bool number_float(json::number_float_t, const std::string&) override { return Count(); }
  bool string(std::string&) override { return Count(); }
  bool binary(json::binary_t&) override { return Count(); }
  bool start_object(size_t) override { return Open(); }
  bool start_array(size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(std::string& name) override {
    Level& level = levels_.back();
    level.current = name;
    if (level.keys.insert(name).second) return true;
    return Refuse("is there twice");
  }

  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    return Refuse(DescribeJsonError(error));
  }

 private:
  struct Level {
    std::set<std::string> keys;
    std::string current;  // Empty in an array.
  };

  bool Refuse(const std::string& what) {
    std::vector<std::string> path;
    for (const Level& level : levels_) {
      if (!level.current.empty()) path.push_back(level.current);
    }
    problem_ = path.empty() ? what : absl::StrCat(Quote(absl::StrJoin(path, ".")), ": ", what);
    return false;
  }

  bool Count() {
    if (++values_ <= limits_.values) return true;
    return Refuse(absl::StrCat("more than ", limits_.values, " values"));
  }

  bool Open() {
    if (static_cast<int>(levels_.size()) == limits_.depth) {
      return Refuse(absl::StrCat("nested deeper than ", limits_.depth, " levels"));
    }
    levels_.emplace_back();
    return Count();
  }

  bool Close() {
    levels_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  std::vector<Level> levels_;
  int64_t values_ = 0;
  std::string problem_;
};

}  // namespace

std::string DescribeJsonError(const std::exception& error) {
  std::string what = error.what();
  const size_t code = what.find("] ");  // "[json.exception.parse_error.101] parse error at ..."
  if (code != std::string::npos) what.erase(0, code + 2);
  return absl::CHexEscape(Cut(what, kMaxErrorBytes));
}

std::string Quote(const std::string& text) {
  const std::string shown = Cut(text, kMaxQuotedBytes);
  const char* more = shown.size() < text.size() ? "..." : "";
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(shown), more, "\"");
}

absl::Status CheckJson(std::string_view text, const std::string& where, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": ", text.size(), " bytes of JSON; at most ", limits.bytes));
  }
  LimitChecker checker(limits);
  if (!json::sax_parse(text.begin(), text.end(), &checker)) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", checker.problem()));
  }
  return absl::OkStatus();
}

absl::StatusOr<json> ParseJson(std::string_view text, const std::string& where,
                               const JsonLimits& limits) {
  RETURN_IF_ERROR(CheckJson(text, where, limits));
  json document = json::parse(text.begin(), text.end(), /*cb=*/nullptr,
                              /*allow_exceptions=*/false);
  if (document.is_discarded()) {
    return absl::InternalError(absl::StrCat(where, ": checked JSON does not parse"));
  }
  return document;
}

absl::StatusOr<json> ReadJsonFile(const std::string& path, const JsonLimits& limits) {
  ASSIGN_OR_RETURN(const RegularFile file, RegularFile::Open(path));
  if (file.size() > limits.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", file.size(), " bytes of JSON; at most ", limits.bytes));
  }
  ASSIGN_OR_RETURN(const std::string text, file.Read(0, file.size()));
  return ParseJson(text, path, limits);
}

}  // namespace snug::program
