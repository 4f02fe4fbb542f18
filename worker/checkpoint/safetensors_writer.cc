#include "worker/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/finite.h"
#include "worker/program/files/json_text.h"

namespace snug::checkpoint {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kAlignment = 8;  // Of the first tensor in the file.

int64_t ElementBytes(const std::string& dtype) {
  if (dtype == "F32") return 4;
  if (dtype == "BF16" || dtype == "F16") return 2;
  if (dtype == "U8") return 1;
  return 0;
}

absl::Status CheckTensor(const TensorBytes& tensor) {
  if (tensor.key.empty() || tensor.key == "__metadata__") {
    return absl::InvalidArgumentError(absl::StrCat("no tensor may be called '", tensor.key, "'"));
  }
  int64_t bytes = ElementBytes(tensor.dtype);
  if (bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(tensor.key, ": dtype ", tensor.dtype, "; accepted: F32, BF16, F16, U8"));
  }
  for (const int64_t size : tensor.shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) {
      return absl::InvalidArgumentError(absl::StrCat(tensor.key, ": no shape with ", size));
    }
  }
  if (bytes != tensor.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(tensor.key, ": its shape has ", bytes, " bytes, given are ", tensor.bytes));
  }
  return absl::OkStatus();
}

std::string LittleEndian(uint64_t value) {
  std::string bytes(kLengthBytes, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(value & 0xff);
    value >>= 8;
  }
  return bytes;
}

absl::StatusOr<std::string> HeaderOf(const std::vector<const TensorBytes*>& tensors) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};  // What transformers and peft ask for.
  int64_t begin = 0;
  for (const TensorBytes* tensor : tensors) {
    header[tensor->key] = {{"dtype", tensor->dtype},
                           {"shape", tensor->shape},
                           {"data_offsets", {begin, begin + tensor->bytes}}};
    begin += tensor->bytes;
  }
  ASSIGN_OR_RETURN(std::string text, program::JsonText(header, program::kOneLine));
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return LittleEndian(text.size()) + text;
}

absl::Status AppendFinite(const TensorBytes& tensor, NewFile& file) {
  int64_t before = 0;  // Bytes of earlier pieces.
  return ForEachPiece(tensor, [&](std::string_view piece) -> absl::Status {
    const auto bytes = static_cast<int64_t>(piece.size());
    const int64_t index = FirstNonFinite(tensor.dtype, piece.data(), bytes);
    if (index >= 0) {
      return absl::OutOfRangeError(absl::StrCat(tensor.key, ": element ",
                                                before / ElementBytes(tensor.dtype) + index,
                                                " is NaN or infinite"));
    }
    before += bytes;
    return file.Append(piece.data(), bytes);
  });
}

}  // namespace

absl::StatusOr<SafetensorsLayout> LayOutSafetensors(const std::vector<TensorBytes>& tensors) {
  SafetensorsLayout layout;
  std::set<std::string> keys;
  for (const TensorBytes& tensor : tensors) {
    RETURN_IF_ERROR(CheckTensor(tensor));
    if (!keys.insert(tensor.key).second) {
      return absl::InvalidArgumentError(absl::StrCat(tensor.key, " is given twice"));
    }
    layout.tensors.push_back(&tensor);
    layout.file_bytes += tensor.bytes;
  }
  std::sort(layout.tensors.begin(), layout.tensors.end(), [](const auto* a, const auto* b) {
    return std::make_tuple(-ElementBytes(a->dtype), a->key) <
           std::make_tuple(-ElementBytes(b->dtype), b->key);
  });
  ASSIGN_OR_RETURN(layout.header, HeaderOf(layout.tensors));
  layout.file_bytes += static_cast<int64_t>(layout.header.size());
  return layout;
}

absl::StatusOr<FileDigest> WriteSafetensors(const SafetensorsLayout& layout, NewFile file) {
  RETURN_IF_ERROR(file.Append(layout.header.data(), static_cast<int64_t>(layout.header.size())));
  for (const TensorBytes* tensor : layout.tensors) {
    RETURN_IF_ERROR(AppendFinite(*tensor, file));
  }
  return file.Finish();
}

absl::StatusOr<FileDigest> WriteSafetensorsFile(const std::string& path,
                                                const std::vector<TensorBytes>& tensors) {
  ASSIGN_OR_RETURN(const SafetensorsLayout layout, LayOutSafetensors(tensors));
  ASSIGN_OR_RETURN(NewFile file, NewFile::Create(path, layout.file_bytes));
  return WriteSafetensors(layout, std::move(file));
}

}  // namespace snug::checkpoint
