// A prepared dataset as the worker maps it and as the daemon reads its lengths:
//   text     dataset.json, up to the first zero byte
//   padding  a byte: how many spaces more than needed stand behind the safetensors header
//   tensors  a byte says how many follow; each has a byte for its name, one for its type and its
//            rank, and one for each dimension
//   data     the rest; what the tensors have more are zeros
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/data/prepared_dataset.h"
#include "tests/fuzz/folder.h"
#include "worker/train/dataset.h"

namespace {

constexpr int64_t kVocabulary = 100;
constexpr size_t kMostTensors = 14, kMostRank = 4, kMostBytes = 1 << 20;
constexpr const char* kNames[kMostTensors] = {
    "row_offsets",    "input_ids", "loss_weights",     "source_line",    "source_ids",
    "source_offsets", "labels",    "token_labels",     "second_begins",  "pixels",
    "pixel_values",   "originals", "original_offsets", "original_widths"};
constexpr struct {
  const char* name;
  size_t bytes;
} kTypes[] = {{"I64", 8}, {"I32", 4}, {"F32", 4}, {"U8", 1}};

// The bytes of the input, one after another; zeros behind its end.
class Bytes {
 public:
  explicit Bytes(std::string_view left) : left_(left) {}
  size_t Next() {
    if (left_.empty()) return 0;
    const auto next = static_cast<unsigned char>(left_.front());
    left_.remove_prefix(1);
    return next;
  }
  std::string_view left() const { return left_; }

 private:
  std::string_view left_;
};

// One member of the header; `end` is where the tensor before it ends, and then where it ends.
std::string Member(Bytes& bytes, size_t& end) {
  const size_t name = bytes.Next() % kMostTensors, kind = bytes.Next();
  const auto& type = kTypes[kind % std::size(kTypes)];
  std::vector<size_t> shape(kind / std::size(kTypes) % (kMostRank + 1));
  size_t count = 1;
  for (size_t& dimension : shape) {
    dimension = bytes.Next();
    if (dimension == 255) dimension = snug::train::kPixelValues;
    count *= dimension;
  }
  const size_t begin = end;
  end += count * type.bytes;
  return absl::StrCat("\"", kNames[name], R"(":{"dtype":")", type.name, R"(","shape":[)",
                      absl::StrJoin(shape, ","), R"(],"data_offsets":[)", begin, ",", end, "]}");
}

// Empty: the tensors are too large.
std::string Safetensors(Bytes bytes) {
  const size_t padding = bytes.Next() % 8, tensors = bytes.Next() % (kMostTensors + 1);
  std::vector<std::string> members;
  size_t end = 0;
  for (size_t i = 0; i < tensors; ++i) members.push_back(Member(bytes, end));
  if (end > kMostBytes) return "";
  std::string header = absl::StrCat("{", absl::StrJoin(members, ","), "}");
  header.resize((header.size() + 7) / 8 * 8 + padding, ' ');
  std::string data(bytes.left());
  data.resize(end);
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

// Reads all of it once, as steps do.
void Use(const snug::train::Dataset& dataset) {
  static volatile double sum = 0.0;
  for (int64_t row = 0; row < dataset.rows().size(); ++row) {
    if (dataset.tokens(row) < 1) abort();
    for (int64_t t = 0; t < dataset.tokens(row); ++t) {
      const int32_t id = dataset.ids(row)[t];
      if (id < 0 || id >= kVocabulary || !std::isfinite(dataset.weights(row)[t])) abort();
      if (dataset.has_token_labels()) sum = sum + dataset.token_labels(row)[t];
    }
    for (int64_t t = 0; t < dataset.source_tokens(row); ++t)
      if (dataset.source_ids(row)[t] >= kVocabulary) abort();
    if (dataset.has_labels()) sum = sum + dataset.label(row);
    for (int64_t i = 0; i < dataset.targets_per_row(); ++i)
      if (!std::isfinite(dataset.targets(row)[i])) abort();
    sum = sum + static_cast<double>(dataset.NameOf(row).size() + dataset.second_begin(row));
    if (dataset.has_images()) sum = sum + dataset.pixels(row)[0];
    if (!dataset.has_originals()) continue;
    const snug::train::Picture picture = dataset.original(row);
    const int64_t size = picture.height * picture.line;
    if (picture.height < 1 || picture.width < 1) abort();
    sum = sum + picture.pixels[0] + picture.pixels[size - 1];
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const size_t zero = std::min(text.find('\0'), size);
  const std::string file = Safetensors(Bytes(text.substr(std::min(zero + 1, size))));
  if (file.empty()) return 0;
  static const std::string folder = Folder("dataset");
  Write(folder + "/dataset.json", text.substr(0, zero));
  Write(folder + "/dataset.safetensors", file);
  const auto lengths = snug::server::ReadLengths(folder);
  const auto sources = snug::server::ReadSourceLengths(folder);
  const auto dataset = snug::train::Dataset::Open(folder, kVocabulary);
  if (!dataset.ok()) return 0;
  Use(*dataset);
  // The daemon plans with the lengths that the worker meets.
  if (!lengths.ok() || lengths->rows_of != dataset->rows().lengths().rows_of) abort();
  if (dataset->has_sources() && sources->rows_of != dataset->source_lengths().rows_of) abort();
  return 0;
}
