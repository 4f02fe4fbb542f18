// The lines of a metrics.jsonl as TensorBoard's events. What stands behind a zero byte comes when
// the first part has been followed.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "tensorboard/event.pb.h"
#include "tests/fuzz/folder.h"
#include "worker/report/event_log.h"

namespace {

// Of a file of whole records.
int64_t EventsIn(const std::string& path) {
  const std::string content = Read(path);
  constexpr size_t kBefore = 12, kBehind = 4;  // The length with its checksum; the event's.
  int64_t events = 0;
  for (size_t at = 0; at < content.size(); ++events) {
    uint64_t length = 0;
    if (content.size() - at < kBefore) abort();
    std::memcpy(&length, &content[at], sizeof length);
    if (length > content.size() - at - kBefore - kBehind) abort();
    snug::tensorboard::Event event;
    if (!event.ParseFromArray(&content[at + kBefore], static_cast<int>(length))) abort();
    at += kBefore + length + kBehind;
  }
  return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using snug::report::EventLog;
  static const std::string folder = Folder("events");
  const std::string metrics = folder + "/metrics.jsonl", path = folder + "/events";
  std::string text(reinterpret_cast<const char*>(bytes), size);
  const size_t zero = std::min(text.find('\0'), size);
  Write(metrics, std::string_view(text).substr(0, zero));
  unlink(path.c_str());
  auto log = EventLog::Create(path, metrics);
  if (!log.ok()) return 0;
  text.erase(zero, 1);
  Write(metrics, text);
  const bool followed = log->Follow().ok();
  // One event says what the file is, and one follows for each whole line.
  const int64_t events = EventsIn(path);
  if (followed && events != 1 + std::count(text.begin(), text.end(), '\n')) abort();
  return 0;
}
