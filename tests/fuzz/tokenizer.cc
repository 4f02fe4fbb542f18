// What is read of tokenizer.json and tokenizer_config.json: up to the first zero byte the one, then
// the other.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tests/fuzz/folder.h"
#include "worker/program/files/added_tokens.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace snug::program;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  static const std::string folder = Folder("model");
  const size_t zero = text.find('\0');
  Write(folder + "/tokenizer.json", text.substr(0, zero));
  Write(folder + "/tokenizer_config.json",
        zero == std::string_view::npos ? "{}" : text.substr(zero + 1));
  ModelConfig config;
  config.vocabulary = config.file_vocabulary = 1000;
  if (!AddTokens(folder, {"<|one|>", "<|two|>"}, config).ok()) return 0;
  if (config.vocabulary < config.file_vocabulary) abort();
  return 0;
}
