// A Llama of a few kilobytes as files: enough for everything that the daemon reads of a model.
#ifndef TESTS_SERVER_TESTING_TINY_MODEL_H_
#define TESTS_SERVER_TESTING_TINY_MODEL_H_

#include <string>

#include "worker/program/program.h"

namespace snug::server {

// Which of a program's parameters a file holds.
enum class Holds { kBase, kAdapter };

// Zeros for every such parameter, under its key and with its shape, fp32.
void WriteParameters(const std::string& path, const program::Program& program, Holds holds);

// config.json and model.safetensors of 2 layers, width 16, vocabulary 64.
void WriteTinyModel(const std::string& dir);

// `rows` pre-tokenised rows of `tokens` tokens.
void WriteTinyDataset(const std::string& path, int rows, int tokens);

void WriteText(const std::string& path, const std::string& text);
std::string ReadText(const std::string& path);

}  // namespace snug::server

#endif  // TESTS_SERVER_TESTING_TINY_MODEL_H_
