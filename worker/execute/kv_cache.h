// Keys and values of tokens that came before a batch, for generation. They stay on the device: a
// step appends its own there. Owns nothing.
#ifndef WORKER_EXECUTE_KV_CACHE_H_
#define WORKER_EXECUTE_KV_CACHE_H_

#include <cstdint>

namespace snug::execute {

// By block of the program, of the compute type. Document d of a batch has its rows from d *
// capacity on. A step puts its own behind `rows`; whoever runs it counts them then.
//
// A tape for this has a key whose longest document is `capacity`, though its tokens are fewer.
struct KvCache {
  void* const* keys = nullptr;    // [block]: (documents * capacity, Hkv*D), or null if none.
  void* const* values = nullptr;  // [block]: the same.
  int64_t capacity = 0;           // Rows per document.
  const int64_t* rows = nullptr;  // (documents) there before this batch; the host's.
  // Where each document's keys begin, and how many it has with the batch's own: for kernels on a
  // stream, which all blocks of a step share; else null.
  const int64_t* device_begins = nullptr;  // (documents)
  const int64_t* device_counts = nullptr;  // (documents)
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_KV_CACHE_H_
