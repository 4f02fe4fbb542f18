// Where the daemon is, and what it asks for there. The one of the command line and its environment.
#ifndef CLIENT_SERVER_H_
#define CLIENT_SERVER_H_

#include <string>

namespace snug::client {

struct Server {
  std::string name;        // unix:PATH or https://HOST:PORT
  std::string token_file;  // Empty: $SNUG_TOKEN.
  // Files in PEM. The authorities that the server's certificate may be by; empty: the system's.
  std::string tls_ca;
  std::string tls_cert, tls_key;  // The client's own, where the server asks for them.
};

}  // namespace snug::client

#endif  // CLIENT_SERVER_H_
