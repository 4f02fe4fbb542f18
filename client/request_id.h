// What makes trying a request again create nothing new.
#ifndef CLIENT_REQUEST_ID_H_
#define CLIENT_REQUEST_ID_H_

#include <string>

namespace snug::client {

// A random UUID (version 4, RFC 9562).
std::string NewRequestId();

}  // namespace snug::client

#endif  // CLIENT_REQUEST_ID_H_
