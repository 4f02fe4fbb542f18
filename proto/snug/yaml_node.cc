// The one file that names yaml-cpp and holds its catch. The limits keep a small file with aliases
// of aliases from becoming a huge tree.
#include "proto/snug/yaml_node.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "proto/snug/status_macros.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/yaml.h"

namespace snug {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 20;
constexpr int kMaxDepth = 64;
constexpr int kMaxNodes = 100'000;
constexpr size_t kMaxShownErrors = 10;  // A file with more is of another kind altogether.
// ASCII's separators stand between the errors on a status. No YAML may hold them as they are, but a
// quoted text may spell them ("\x1e"), so that they are taken out of what a file says.
constexpr const char* kPayload = "snug.YamlErrors";
constexpr size_t kEscape = 6;  // Characters of \uXXXX.
constexpr const char* kUnit = "\x1f";
constexpr const char* kRecord = "\x1e";

class Converter {
 public:
  explicit Converter(absl::string_view file) : file_(file) {}

  absl::StatusOr<YamlNode> Convert(const YAML::Node& from, int depth) {
    YamlNode node;
    node.line = from.Mark().line + 1;
    if (depth > kMaxDepth)
      return Error(node.line, absl::StrCat("nested deeper than ", kMaxDepth, " levels"));
    if (++nodes_ > kMaxNodes)
      return Error(node.line, absl::StrCat("more than ", kMaxNodes, " values"));
    switch (from.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null:
        return node;
      case YAML::NodeType::Scalar:
        node.kind = YamlNode::Kind::kScalar;
        node.scalar = from.Scalar();
        return node;
      case YAML::NodeType::Sequence:
        return Sequence(from, depth, std::move(node));
      case YAML::NodeType::Map:
        return Mapping(from, depth, std::move(node));
    }
    return Error(node.line, "not YAML that is understood here");
  }

  absl::Status Error(int line, absl::string_view what) const {
    return YamlStatus(file_, {{.line = line, .field = {}, .message = std::string(what)}});
  }

 private:
  absl::StatusOr<YamlNode> Sequence(const YAML::Node& from, int depth, YamlNode node) {
    node.kind = YamlNode::Kind::kSequence;
    for (const YAML::Node& item : from) {
      ASSIGN_OR_RETURN(YamlNode converted, Convert(item, depth + 1));
      node.items.push_back(std::move(converted));
    }
    return node;
  }

  absl::StatusOr<YamlNode> Mapping(const YAML::Node& from, int depth, YamlNode node) {
    node.kind = YamlNode::Kind::kMapping;
    for (const auto& entry : from) {
      const int line = entry.first.Mark().line + 1;
      if (!entry.first.IsScalar())
        return Error(line, "a key must be a word, not a list or a mapping");
      ASSIGN_OR_RETURN(YamlNode value, Convert(entry.second, depth + 1));
      node.entries.push_back({entry.first.Scalar(), line, std::move(value), {}});
    }
    return node;
  }

  const std::string file_;
  int nodes_ = 0;
};

// Takes note of where a document starts, and of nothing else.
class DocumentStart final : public YAML::EventHandler {
 public:
  int line() const { return line_; }

  void OnDocumentStart(const YAML::Mark& mark) override { line_ = mark.line + 1; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  int line_ = 0;
};

// Where a second document starts; 0: there is none. Not LoadAll: yaml-cpp 0.7 makes documents of a
// stray comma for ever, without moving on in the text.
int SecondDocumentLine(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStart start;
  const bool has_two = parser.HandleNextDocument(start) && parser.HandleNextDocument(start);
  return has_two ? start.line() : 0;
}

// Of an escape \uXXXX at the beginning: its 16 bits. Nothing: there is none.
std::optional<uint32_t> EscapedUnit(absl::string_view text) {
  uint32_t unit = 0;
  const bool is_one = text.size() >= kEscape && absl::StartsWith(text, "\\u") &&
                      absl::SimpleHexAtoi(text.substr(2, kEscape - 2), &unit);
  return is_one ? std::optional(unit) : std::nullopt;
}

// JSON spells what is beyond 16 bits as two escapes, high and low surrogate, where YAML has one.
std::string WithJoinedSurrogates(absl::string_view json) {
  std::string joined;
  for (size_t at = 0; at < json.size();) {
    if (json[at] != '\\') {
      joined += json[at++];
      continue;
    }
    const std::optional<uint32_t> high = EscapedUnit(json.substr(at));
    const std::optional<uint32_t> low =
        high && *high >> 10 == 0x36 ? EscapedUnit(json.substr(at + kEscape)) : std::nullopt;
    if (low && *low >> 10 == 0x37) {
      absl::StrAppendFormat(&joined, "\\U%08x", 0x10000 + (*high - 0xD800) * 0x400 + *low - 0xDC00);
      at += 2 * kEscape;
    } else {
      absl::StrAppend(&joined, json.substr(at, 2));  // Of \\ both: the second escapes nothing.
      at += 2;
    }
  }
  return joined;
}

bool IsJson(absl::string_view text) {
  return absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{");
}

std::string WithoutSeparators(const std::string& text) {
  return absl::StrReplaceAll(text, {{kUnit, " "}, {kRecord, " "}});
}

}  // namespace

absl::Status YamlStatus(absl::string_view place, std::vector<YamlError> errors) {
  if (errors.empty()) return absl::OkStatus();
  std::stable_sort(errors.begin(), errors.end(),
                   [](const YamlError& a, const YamlError& b) { return a.line < b.line; });
  std::vector<std::string> lines;
  std::string payload;
  for (const YamlError& error : errors) {
    const std::string at = error.line == 0 ? "" : absl::StrCat(":", error.line);
    if (lines.size() < kMaxShownErrors)
      lines.push_back(absl::StrCat(place, at, ": ", error.message));
    absl::StrAppend(&payload, error.line, kUnit, WithoutSeparators(error.field), kUnit,
                    WithoutSeparators(error.message), kRecord);
  }
  if (errors.size() > lines.size())
    lines.push_back(absl::StrCat(place, ": ", errors.size() - lines.size(), " more errors"));
  absl::Status status = absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
  status.SetPayload(kPayload, absl::Cord(payload));
  return status;
}

std::vector<YamlError> YamlErrors(const absl::Status& status) {
  std::vector<YamlError> errors;
  const auto payload = status.GetPayload(kPayload);
  if (!payload) return errors;
  for (const absl::string_view record :
       absl::StrSplit(std::string(*payload), kRecord, absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(record, absl::MaxSplits(kUnit, 2));
    YamlError error{.line = 0, .field = parts[1], .message = parts[2]};
    if (absl::SimpleAtoi(parts[0], &error.line)) errors.push_back(std::move(error));
  }
  return errors;
}

absl::StatusOr<YamlNode> ReadYaml(absl::string_view text, absl::string_view file) {
  Converter converter(file);
  if (text.size() > kMaxTextBytes) {
    return converter.Error(
        1, absl::StrCat("the file has ", text.size(), " bytes; at most ", kMaxTextBytes));
  }
  try {
    const std::string whole = IsJson(text) ? WithJoinedSurrogates(text) : std::string(text);
    if (const int line = SecondDocumentLine(whole); line > 0) {
      return converter.Error(line, "what begins here is not part of the one document of a file");
    }
    return converter.Convert(YAML::Load(whole), 0);
  } catch (const YAML::Exception& e) {
    return converter.Error(e.mark.line + 1, absl::StrCat("not valid YAML: ", e.msg));
  } catch (const std::exception& e) {
    return converter.Error(1, absl::StrCat("not valid YAML: ", e.what()));
  }
}

}  // namespace snug
