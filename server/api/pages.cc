#include "server/api/pages.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/job/errors.h"

namespace snug::server {
namespace {

constexpr int32_t kDefaultPage = 50;
constexpr int32_t kMaxPage = 1000;

}  // namespace

absl::StatusOr<size_t> PageSizeOf(int32_t page_size) {
  if (page_size < 0) return InvalidRequest({{"page_size", "cannot be negative", "BAD_FIELD"}});
  return static_cast<size_t>(page_size == 0 ? kDefaultPage : std::min(page_size, kMaxPage));
}

std::string FilterOf(const google::protobuf::Message& request) {
  const std::unique_ptr<google::protobuf::Message> filter(request.New());
  filter->CopyFrom(request);
  for (const char* name : {"page_token", "page_size", "read_mask"})
    if (const auto* field = filter->GetDescriptor()->FindFieldByName(name))
      filter->GetReflection()->ClearField(filter.get(), field);
  return absl::StrCat(filter->GetTypeName(), " ", filter->ShortDebugString());
}

std::string SortedText(int64_t number) {
  // From 0 on as it is counted from the smallest: signs do not sort.
  return absl::StrFormat("%020d", static_cast<uint64_t>(number) ^ (uint64_t{1} << 63));
}

std::string SortedBackwards(int64_t number) { return SortedText(~number); }

}  // namespace snug::server
