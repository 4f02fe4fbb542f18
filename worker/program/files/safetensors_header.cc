// The grammar, which is all that is accepted (any order of members, no member twice):
//   header   = { ["__metadata__": { name: text, ... },] tensor-name: tensor, ... }
//   tensor   = { "dtype": dtype, "shape": [n, ...], "data_offsets": [begin, end] }
//   n, begin, end = natural numbers without sign, fraction or exponent
// The header is walked by events: what it says is never built as a tree, and no depth is followed
// that the grammar does not have.
#include "worker/program/files/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/program/files/json.h"

namespace snug::program {
namespace {

using nlohmann::json;

constexpr size_t kMaxTensors = 200'000;  // Ten times a mixture of experts with all its experts.
constexpr size_t kMaxNameBytes = 512;
constexpr size_t kMaxMetadataBytes = 1'000'000;
constexpr size_t kMaxRank = 8;
constexpr uint64_t kMaxNumber = uint64_t{1} << 48;

struct DtypeBits {
  const char* name;
  int bits;
};
// Those of safetensors 0.8. Whether a program can use one is not decided here.
constexpr DtypeBits kDtypes[] = {
    {"BOOL", 8},    {"U8", 8},      {"I8", 8},          {"I16", 16},        {"U16", 16},
    {"I32", 32},    {"U32", 32},    {"I64", 64},        {"U64", 64},        {"F16", 16},
    {"BF16", 16},   {"F32", 32},    {"F64", 64},        {"C64", 64},        {"F8_E5M2", 8},
    {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6},
    {"F6_E3M2", 6}, {"F4", 4},
};

// 0 when the format has no such dtype.
int BitsOf(const std::string& dtype) {
  for (const DtypeBits& known : kDtypes) {
    if (dtype == known.name) return known.bits;
  }
  return 0;
}

class HeaderReader : public json::json_sax_t {
 public:
  HeaderTensors& tensors() { return tensors_; }
  const std::string& problem() const { return problem_; }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(json::number_integer_t value) override {
    return Unexpected(absl::StrCat("the number ", value == 0 ? "-" : "", value));
  }
  bool number_float(json::number_float_t, const std::string& text) override {
    return Unexpected(absl::StrCat("the number ", text.substr(0, 40)));
  }
  bool binary(json::binary_t&) override { return Unexpected("binary"); }
  bool number_unsigned(json::number_unsigned_t value) override;
  bool string(std::string& value) override;
  bool key(std::string& name) override;
  bool start_object(size_t) override;
  bool end_object() override;
  bool start_array(size_t) override;
  bool end_array() override;

  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    return Refuse(DescribeJsonError(error));
  }

 private:
  enum class Place { kStart, kHeader, kMetadata, kTensor, kShape, kOffsets, kEnd };

  bool Refuse(const std::string& what) {
    problem_ =
        place_ == Place::kStart || name_.empty() ? what : absl::StrCat(Quote(name_), ": ", what);
    return false;
  }

  bool Unexpected(const std::string& what) {
    const bool inside = place_ != Place::kStart && place_ != Place::kHeader;
    return Refuse(absl::StrCat(what, " where the format has none",
                               inside && !member_.empty() ? ", in " : "",
                               inside ? Quote(member_) : ""));
  }

  bool BeginTensor(const std::string& name);
  bool CheckTensor();

  Place place_ = Place::kStart;
  std::string name_;               // Of the tensor, or "__metadata__".
  std::string member_;             // Of it.
  std::set<std::string> members_;  // Of it, so far.
  size_t metadata_bytes_ = 0;
  bool metadata_seen_ = false;
  HeaderTensor tensor_;
  std::vector<int64_t> offsets_;
  HeaderTensors tensors_;
  std::string problem_;
};

bool HeaderReader::number_unsigned(json::number_unsigned_t value) {
  if (place_ != Place::kShape && place_ != Place::kOffsets) {
    return Unexpected(absl::StrCat("the number ", value));
  }
  if (value > kMaxNumber) return Refuse(absl::StrCat(member_, " has ", value, "; at most 2^48"));
  std::vector<int64_t>& list = place_ == Place::kShape ? tensor_.shape : offsets_;
  const size_t most = place_ == Place::kShape ? kMaxRank : 2;
  if (list.size() == most)
    return Refuse(absl::StrCat(member_, " has more than ", most, " numbers"));
  list.push_back(static_cast<int64_t>(value));
  return true;
}

bool HeaderReader::string(std::string& value) {
  if (place_ == Place::kMetadata) {
    metadata_bytes_ += value.size();
    return metadata_bytes_ <= kMaxMetadataBytes ||
           Refuse(absl::StrCat("more than ", kMaxMetadataBytes, " bytes"));
  }
  if (place_ != Place::kTensor || member_ != "dtype") {
    return Unexpected(absl::StrCat("the text ", Quote(value)));
  }
  if (BitsOf(value) == 0)
    return Refuse(absl::StrCat("dtype ", Quote(value), " is not one of the format"));
  tensor_.dtype = std::move(value);
  return true;
}

bool HeaderReader::key(std::string& name) {
  if (place_ == Place::kHeader) return BeginTensor(name);
  member_ = name;
  if (place_ == Place::kMetadata) metadata_bytes_ += name.size();
  if (place_ == Place::kTensor && name != "dtype" && name != "shape" && name != "data_offsets") {
    return Refuse(absl::StrCat("has ", Quote(name), "; accepted: dtype, shape, data_offsets"));
  }
  if (metadata_bytes_ > kMaxMetadataBytes) {
    return Refuse(absl::StrCat("more than ", kMaxMetadataBytes, " bytes"));
  }
  return members_.insert(name).second || Refuse(absl::StrCat(Quote(name), " is there twice"));
}

bool HeaderReader::BeginTensor(const std::string& name) {
  name_ = name;
  member_.clear();
  if (name == "__metadata__") {
    if (metadata_seen_) return Refuse("is there twice");
    metadata_seen_ = true;
    return true;
  }
  if (name.size() > kMaxNameBytes) {
    return Refuse(absl::StrCat("a name of ", name.size(), " bytes; at most ", kMaxNameBytes));
  }
  if (tensors_.size() == kMaxTensors) {
    return Refuse(absl::StrCat("one tensor too many; at most ", kMaxTensors));
  }
  return !tensors_.contains(name) || Refuse("is there twice");
}

bool HeaderReader::start_object(size_t) {
  if (place_ == Place::kStart) {
    place_ = Place::kHeader;
    return true;
  }
  if (place_ != Place::kHeader) return Unexpected("an object");
  place_ = name_ == "__metadata__" ? Place::kMetadata : Place::kTensor;
  members_.clear();
  tensor_ = HeaderTensor();
  offsets_.clear();
  return true;
}

bool HeaderReader::end_object() {
  if (place_ == Place::kHeader) {
    place_ = Place::kEnd;
    return true;
  }
  if (place_ == Place::kTensor && !CheckTensor()) return false;
  if (place_ == Place::kTensor) tensors_.emplace(name_, std::move(tensor_));
  place_ = Place::kHeader;
  return true;
}

bool HeaderReader::start_array(size_t) {
  if (place_ != Place::kTensor || member_ == "dtype") return Unexpected("a list");
  place_ = member_ == "shape" ? Place::kShape : Place::kOffsets;
  return true;
}

bool HeaderReader::end_array() {
  place_ = Place::kTensor;
  return true;
}

bool HeaderReader::CheckTensor() {
  for (const char* member : {"dtype", "shape", "data_offsets"}) {
    if (!members_.contains(member)) return Refuse(absl::StrCat("has no ", member));
  }
  if (offsets_.size() != 2) return Refuse("data_offsets are not two numbers");
  tensor_.begin = offsets_[0];
  tensor_.end = offsets_[1];
  int64_t bits = BitsOf(tensor_.dtype);
  bool overflow = false;
  for (int64_t size : tensor_.shape) overflow |= __builtin_mul_overflow(bits, size, &bits);
  const std::string kind =
      absl::StrCat(tensor_.dtype, " [", absl::StrJoin(tensor_.shape, ", "), "]");
  if (overflow) return Refuse(absl::StrCat(kind, " has more than 2^63 bits"));
  if (bits % 8 != 0) return Refuse(absl::StrCat(kind, " does not fill whole bytes"));
  if (tensor_.begin > tensor_.end || tensor_.end - tensor_.begin != bits / 8) {
    return Refuse(absl::StrCat(kind, " has ", bits / 8, " bytes, but data_offsets [", tensor_.begin,
                               ", ", tensor_.end, "]"));
  }
  return true;
}

}  // namespace

absl::StatusOr<HeaderTensors> ParseSafetensorsHeader(std::string_view text,
                                                     const std::string& where) {
  const size_t last = text.find_last_not_of(' ');
  if (text.empty() || text.front() != '{' || text[last] != '}') {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": the header is not { ... } with spaces behind it"));
  }
  HeaderReader reader;
  if (!json::sax_parse(text.begin(), text.end(), &reader)) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": header: ", reader.problem()));
  }
  return std::move(reader.tensors());
}

absl::Status CheckSafetensorsLayout(const HeaderTensors& tensors, int64_t data_bytes,
                                    const std::string& where) {
  std::vector<const HeaderTensors::value_type*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  int64_t filled = 0;
  for (const auto* tensor : order) {
    const auto& [name, place] = *tensor;
    if (place.begin != filled) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": ", Quote(name), " begins at byte ", place.begin,
                       place.begin < filled ? ", inside the tensor before it, which ends at "
                                            : ", behind a gap: the tensor before it ends at ",
                       filled));
    }
    filled = place.end;
  }
  if (filled == data_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(where, ": the tensors take ", filled,
                                                 " bytes, the file has ", data_bytes,
                                                 " behind its header"));
}

}  // namespace snug::program
