// A row of the store's tokens.
#ifndef SERVER_JOB_TOKEN_RECORD_H_
#define SERVER_JOB_TOKEN_RECORD_H_

#include <cstdint>
#include <string>

#include "snug/v1/token.pb.h"

namespace snug::server {

// What lets a client in over TLS. Of the token itself only its hash is kept.
struct TokenRecord {
  std::string id;
  std::string tenant;
  v1::Token::Role role = v1::Token::ROLE_UNSPECIFIED;
  std::string sha256;  // Of all that the client sends.
  int64_t created_us = 0;
  int64_t expires_us = 0;
  int64_t revoked_us = 0;  // 0: it has not been revoked.
};

}  // namespace snug::server

#endif  // SERVER_JOB_TOKEN_RECORD_H_
