// How what a job made is served: by transformers, vLLM, llama.cpp and Ollama, each only where it
// loads it.
#ifndef CLIENT_SERVING_H_
#define CLIENT_SERVING_H_

#include <ostream>
#include <string>
#include <vector>

#include "snug/v1/job.pb.h"

namespace snug::client {

struct Serving {
  std::string reader;              // "vLLM"
  std::vector<std::string> lines;  // To be run one after another: Python's, or a shell's.
  bool is_python = false;
};

// Of a job that has an output, of which `folder` is a copy. Empty: it has none.
std::vector<Serving> ServingOf(const v1::Job& job, const std::string& folder);

// Python that loads it. `base`: a folder or an id on the hub; of use for an adapter alone.
std::vector<std::string> LoadingLines(const v1::Job& job, const std::string& base,
                                      const std::string& folder);

// What is typed into one line: for Python with ';', for a shell with '&&' between.
std::string InOneLine(const Serving& serving);

void PrintServing(const std::vector<Serving>& all, std::ostream& out);

// A word that a shell takes as it is.
std::string ShellWord(const std::string& text);

}  // namespace snug::client

#endif  // CLIENT_SERVING_H_
