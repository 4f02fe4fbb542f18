#include "server/shim/launch_request.h"

#include <cstdlib>
#include <cstring>

namespace snug::shim {

bool SplitLaunchRequest(std::string& text, LaunchRequest& request) {
  if (text.empty() || text.back() != '\0') return false;
  size_t at = std::strlen(text.c_str()) + 1;
  const int count = std::atoi(text.c_str());
  auto& [arguments, environment] = request;
  for (; at < text.size(); at += std::strlen(&text[at]) + 1) {
    const bool argument = arguments.size() < static_cast<size_t>(count);
    (argument ? arguments : environment).push_back(&text[at]);
  }
  const bool all = count > 0 && arguments.size() == static_cast<size_t>(count);
  arguments.push_back(nullptr);
  environment.push_back(nullptr);
  return all;
}

}  // namespace snug::shim
