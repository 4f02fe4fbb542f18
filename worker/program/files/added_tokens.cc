// tokenizer.json, as the tokenizers library (0.23) writes it: {"added_tokens": [{"id", "content",
// ...}], "model": {"vocab": ...}}, where the vocabulary is an object of tokens to ids, or (Unigram)
// an array of [token, score]. tokenizer_config.json may name more under added_tokens_decoder, by
// their ids, which transformers adds.
#include "worker/program/files/added_tokens.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/files/json.h"
#include "worker/program/files/regular_file.h"

namespace snug::program {
namespace {

using nlohmann::json;

// Four times the largest tokenizer.json seen (of a vocabulary of 262,000: 33 MB), rounded up.
constexpr int64_t kMaxTokenizerBytes = int64_t{256} << 20;
// A post-processor that is a sequence of sequences nests eight deep. A token, a score and a merge
// are four values at most: of a vocabulary of 262,000 some two million.
constexpr int kMaxDepth = 32;
constexpr int64_t kMaxValues = 16'000'000;

// Walks either file without keeping it, and no further than the limits above.
class TokenFinder : public json::json_sax_t {
 public:
  explicit TokenFinder(const std::vector<std::string>& wanted)
      : wanted_(wanted.begin(), wanted.end()) {}

  // The id that the next token gets.
  int64_t next_id() const { return std::max(vocabulary_, next_added_); }
  const std::string& known() const { return known_; }  // One of those wanted; empty: none.
  const std::string& problem() const { return problem_; }

  bool null() override { return CountValue(); }
  bool boolean(bool) override { return CountValue(); }
  bool number_integer(json::number_integer_t) override { return CountValue(); }
  bool number_float(json::number_float_t, const std::string&) override { return CountValue(); }
  bool binary(json::binary_t&) override { return CountValue(); }
  bool start_object(size_t) override { return Open(/*array=*/false); }
  bool start_array(size_t) override { return Open(/*array=*/true); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool number_unsigned(json::number_unsigned_t value) override {
    if (IsAt({"added_tokens", "", "id"})) SeeId(value);
    return CountValue();
  }

  bool string(std::string& text) override {
    if (IsAt({"model", "vocab", "", ""})) Count(text);
    if (IsAt({"added_tokens", "", "content"})) See(text);
    return CountValue();
  }

  bool key(std::string& name) override {
    levels_.back().key = name;
    if (levels_.size() == 3 && IsAt({"model", "vocab", name})) Count(name);
    uint64_t id = 0;
    if (levels_.size() == 2 && IsAt({"added_tokens_decoder", name}) && absl::SimpleAtoi(name, &id))
      SeeId(id);
    return true;
  }

  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    return Refuse(DescribeJsonError(error));
  }

 private:
  struct Level {
    bool array;
    std::string key = "";  // Empty in an array.
  };

  bool IsAt(std::initializer_list<std::string_view> path) const {
    return std::equal(levels_.begin(), levels_.end(), path.begin(), path.end(),
                      [](const Level& level, std::string_view key) { return level.key == key; });
  }
  bool Refuse(const std::string& what) {
    problem_ = what;
    return false;
  }
  bool CountValue() {
    if (++values_ <= kMaxValues) return true;
    return Refuse(absl::StrCat("more than ", kMaxValues, " values"));
  }
  bool Open(bool array) {
    if (static_cast<int>(levels_.size()) == kMaxDepth)
      return Refuse(absl::StrCat("nested deeper than ", kMaxDepth, " levels"));
    levels_.push_back({array});
    return CountValue();
  }
  bool Close() {
    levels_.pop_back();
    return true;
  }
  void See(const std::string& token) {
    if (known_.empty() && wanted_.contains(token)) known_ = token;
  }
  void Count(const std::string& token) {
    ++vocabulary_;
    See(token);
  }
  void SeeId(uint64_t id) {
    next_added_ = std::max(next_added_, static_cast<int64_t>(std::min<uint64_t>(id, 1 << 30)) + 1);
  }

  const std::set<std::string> wanted_;
  std::vector<Level> levels_;
  int64_t values_ = 0, vocabulary_ = 0, next_added_ = 0;
  std::string known_, problem_;
};

absl::Status Error(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("added_tokens: ", what));
}

absl::Status Walk(const std::string& path, TokenFinder& finder) {
  const absl::StatusOr<RegularFile> file = RegularFile::Open(path);
  if (!file.ok()) return Error(std::string(file.status().message()));
  if (file->size() > kMaxTokenizerBytes) {
    return Error(absl::StrCat(path, ": ", file->size(), " bytes; at most ", kMaxTokenizerBytes));
  }
  ASSIGN_OR_RETURN(const std::string text, file->Read(0, file->size()));
  if (json::sax_parse(text, &finder)) return absl::OkStatus();
  return Error(absl::StrCat(path, ": ", finder.problem()));
}

}  // namespace

absl::Status AddTokens(const std::string& model_dir, const std::vector<std::string>& tokens,
                       ModelConfig& config) {
  if (tokens.empty()) return absl::OkStatus();
  TokenFinder finder(tokens);
  RETURN_IF_ERROR(Walk(model_dir + "/tokenizer.json", finder));
  const std::string more = model_dir + "/tokenizer_config.json";
  if (!absl::IsNotFound(RegularFile::Open(more).status())) RETURN_IF_ERROR(Walk(more, finder));
  if (!finder.known().empty()) {
    return Error(
        absl::StrCat(Quote(finder.known()), " is a token of the model already: leave it ", "out"));
  }
  if (finder.next_id() == 0) return Error(absl::StrCat(model_dir, "/tokenizer.json has no tokens"));
  const auto count = static_cast<int64_t>(tokens.size());
  config.file_vocabulary = config.vocabulary;
  config.first_added = finder.next_id();
  config.vocabulary = std::max(config.vocabulary, config.first_added + count);
  return absl::OkStatus();
}

}  // namespace snug::program
