// A safetensors file: 8 bytes N, little-endian; N bytes of JSON header; the tensors, end to end.
//
// What is read before anything is believed: the first 512 bytes. Then N is compared with the limits
// and the file's size, and only then memory for the header is taken. The tensors' values are not
// read: that they are finite is the worker's to check.
#include "worker/program/files/safetensors.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/files/regular_file.h"
#include "worker/program/files/safetensors_header.h"

namespace snug::program {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMinFileBytes = 10;  // With the header {}.
// The format allows 100 MB. 200,000 tensors with names of 50 bytes take 25 MB.
constexpr int64_t kMaxHeaderBytes = 25'000'000;
constexpr int64_t kPrefixBytes = 512;  // The mark of a tar archive is at byte 257.

uint64_t LittleEndian(const std::string& prefix) {
  uint64_t value = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) {
    value = value << 8 | static_cast<unsigned char>(prefix[i]);
  }
  return value;
}

bool IsPickle(const std::string& prefix) {
  return prefix.size() > 1 && prefix[0] == '\x80' && prefix[1] >= 2 && prefix[1] <= 5;
}

// What a file is that is no safetensors file, by its first bytes whatever its name. Only asked
// then: a header of 640 bytes begins like a pickle.
std::string NameForeignFormat(const std::string& prefix) {
  if (IsPickle(prefix) || absl::StartsWith(prefix, "PK\x03\x04")) {
    return "UNSAFE_FORMAT: a pickle or zip archive as torch.save writes it, which can run code "
           "when "
           "it is read; save the weights as safetensors";
  }
  const std::pair<std::string, const char*> marks[] = {
      {"GGUF", "a GGUF file"},
      {"\x89HDF\r\n\x1a\n", "an HDF5 file"},
      {"\x93NUMPY", "a NumPy file"},
      {"version https://git-lfs", "a Git LFS pointer, not the file itself (git lfs pull gets it)"},
  };
  for (const auto& [mark, name] : marks) {
    if (absl::StartsWith(prefix, mark)) return absl::StrCat("UNSAFE_FORMAT: ", name);
  }
  if (prefix.size() > 262 && prefix.compare(257, 5, "ustar") == 0) {
    return "UNSAFE_FORMAT: a tar archive";
  }
  return "";
}

absl::Status NotSafetensors(const std::string& path, const std::string& prefix,
                            const std::string& why) {
  const std::string foreign = NameForeignFormat(prefix);
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": not a safetensors file: ", foreign.empty() ? why : foreign));
}

// The length of the header, certainly small and inside the file.
absl::StatusOr<int64_t> HeaderLength(const std::string& path, int64_t file_bytes,
                                     const std::string& prefix) {
  if (file_bytes < kMinFileBytes) {
    return NotSafetensors(path, prefix, absl::StrCat(file_bytes, " bytes; at least 10"));
  }
  const uint64_t length = LittleEndian(prefix);
  if (length < 2 || length > static_cast<uint64_t>(file_bytes - kLengthBytes)) {
    return NotSafetensors(path, prefix,
                          absl::StrCat("a header of ", length, " bytes in a file of ", file_bytes));
  }
  if (prefix[kLengthBytes] != '{') {
    return NotSafetensors(path, prefix, "the header does not begin with {");
  }
  if (length > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a header of ", length, " bytes; at most ", kMaxHeaderBytes));
  }
  return static_cast<int64_t>(length);
}

}  // namespace

absl::StatusOr<TensorIndex> ReadSafetensorsHeader(const std::string& path) {
  ASSIGN_OR_RETURN(const RegularFile file, RegularFile::Open(path));
  ASSIGN_OR_RETURN(const std::string prefix, file.Read(0, std::min(kPrefixBytes, file.size())));
  ASSIGN_OR_RETURN(const int64_t length, HeaderLength(path, file.size(), prefix));
  ASSIGN_OR_RETURN(const std::string header, file.Read(kLengthBytes, length));
  ASSIGN_OR_RETURN(HeaderTensors tensors, ParseSafetensorsHeader(header, path));
  const int64_t data = kLengthBytes + length;
  RETURN_IF_ERROR(CheckSafetensorsLayout(tensors, file.size() - data, path));
  TensorIndex index;
  for (auto& [name, tensor] : tensors) {
    index[name] = {.dtype = std::move(tensor.dtype),
                   .shape = std::move(tensor.shape),
                   .file = path,
                   .begin = data + tensor.begin,
                   .bytes = tensor.end - tensor.begin};
  }
  return index;
}

}  // namespace snug::program
