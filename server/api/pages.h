// Pages of lists that are in memory as a whole; of jobs see job_pages.h.
#ifndef SERVER_API_PAGES_H_
#define SERVER_API_PAGES_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/field_mask.pb.h"
#include "google/protobuf/message.h"
#include "proto/snug/status_macros.h"
#include "server/api/masks.h"
#include "server/api/page_token.h"

namespace snug::server {

inline constexpr int64_t kMaxPageBytes = 3 << 20;  // Clients take 4 MiB by default.

// How many things a page has at most, of a request's page_size. INVALID_ARGUMENT: it is negative.
absl::StatusOr<size_t> PageSizeOf(int32_t page_size);

// What a token of the list is bound to: the whole request, less which page it is and what of each
// thing is shown.
std::string FilterOf(const google::protobuf::Message& request);

// A number as text that sorts as it does.
std::string SortedText(int64_t number);
// And the other way round: newest first.
std::string SortedBackwards(int64_t number);

// One thing of a list, and its place: places sort as the list does, and no two are the same.
template <typename Message>
struct Listed {
  std::string place;
  Message message;
};

template <typename Message>
struct Page {
  std::vector<Message> messages;
  std::string next_token;  // Empty: it is the last.
};

// The page of `list`, which is sorted, that the request asks for: what its read_mask names of each
// thing, as many as its page_size, and at most 3 MiB of them or one. `fill` makes whole what is
// on the page, and no other: it may cost something.
template <typename Request, typename Message, typename Fill>
absl::StatusOr<Page<Message>> PageOf(const Request& request, std::vector<Listed<Message>> list,
                                     const PageTokens& tokens, const Fill& fill) {
  ASSIGN_OR_RETURN(const size_t size, PageSizeOf(request.page_size()));
  RETURN_IF_ERROR(CheckReadMask(request.read_mask(), *Message::descriptor()));
  const std::string filter = FilterOf(request);
  ASSIGN_OR_RETURN(const std::string after, tokens.Read(request.page_token(), filter));
  auto next = request.page_token().empty()
                  ? list.begin()
                  : std::upper_bound(list.begin(), list.end(), after,
                                     [](const std::string& place, const Listed<Message>& listed) {
                                       return place < listed.place;
                                     });
  Page<Message> page;
  int64_t bytes = 0;
  for (; next != list.end() && page.messages.size() < size; ++next) {
    RETURN_IF_ERROR(fill(next->message));
    Trim(request.read_mask(), next->message);
    bytes += static_cast<int64_t>(next->message.ByteSizeLong());
    if (bytes > kMaxPageBytes && !page.messages.empty()) break;
    page.messages.push_back(std::move(next->message));
  }
  if (next != list.end() && next != list.begin())
    page.next_token = tokens.Make(std::prev(next)->place, filter);
  return page;
}

template <typename Request, typename Message>
absl::StatusOr<Page<Message>> PageOf(const Request& request, std::vector<Listed<Message>> list,
                                     const PageTokens& tokens) {
  return PageOf(request, std::move(list), tokens, [](Message&) { return absl::OkStatus(); });
}

// The page as a response, into its field `messages`.
template <typename Response, typename Message>
absl::StatusOr<Response> ResponseOf(absl::StatusOr<Page<Message>> page,
                                    Message* (Response::*add)()) {
  RETURN_IF_ERROR(page.status());
  Response response;
  for (Message& message : page->messages) *(response.*add)() = std::move(message);
  response.set_next_page_token(page->next_token);
  return response;
}

}  // namespace snug::server

#endif  // SERVER_API_PAGES_H_
