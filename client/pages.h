// Lists of the API as a whole: page after page.
#ifndef CLIENT_PAGES_H_
#define CLIENT_PAGES_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/connection.h"
#include "proto/snug/status_macros.h"

namespace snug::client {

inline constexpr int kLargestPage = 1000;  // That the API gives.

// All pages in one reply, from the first on. `deadline`: of each.
template <class Request, class Reply>
absl::StatusOr<Reply> AllPages(Connection& connection,
                               grpc::Status (v1::FineTuning::Stub::*list)(grpc::ClientContext*,
                                                                          const Request&, Reply*),
                               Request request, absl::Duration deadline = absl::Minutes(2)) {
  request.set_page_size(kLargestPage);
  Reply all;
  do {
    ASSIGN_OR_RETURN(const Reply page, connection.Call(list, request, deadline));
    request.set_page_token(page.next_page_token());
    all.MergeFrom(page);
  } while (!request.page_token().empty());
  all.clear_next_page_token();
  return all;
}

}  // namespace snug::client

#endif  // CLIENT_PAGES_H_
