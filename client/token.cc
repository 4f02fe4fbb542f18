// token: what lets clients in over TLS. For who may open the daemon's own socket as its user.
#include "absl/time/clock.h"
#include "client/commands.h"
#include "client/json.h"
#include "client/pages.h"
#include "client/table.h"
#include "google/protobuf/util/time_util.h"
#include "proto/snug/enum_words.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

std::string RoleOf(const v1::Token& token) { return LowerEnumWord(token.role()); }

std::string StateOf(const v1::Token& token) {
  using google::protobuf::util::TimeUtil;
  if (token.has_revoke_time()) return "revoked";
  const int64_t expires = TimeUtil::TimestampToMicroseconds(token.expire_time());
  return absl::ToUnixMicros(absl::Now()) < expires ? "valid" : "expired";  // To the microsecond.
}

absl::StatusOr<int> CreateToken(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  v1::CreateTokenRequest request;
  request.set_tenant(line.tenant);
  v1::Token::Role role = v1::Token::ROLE_UNSPECIFIED;
  ParseEnumWord(line.role, &role);
  request.set_role(role);
  request.set_valid_seconds(line.valid_seconds);
  ASSIGN_OR_RETURN(const v1::CreateTokenResponse made,
                   connection.Call(&v1::FineTuning::Stub::CreateToken, request));
  if (line.output == Output::kJson)
    terminal.out << JsonText(ToJson(made));
  else
    terminal.out << made.secret() << "\n";
  terminal.err << "This is all that is ever seen of token " << made.token().id() << ", a "
               << RoleOf(made.token()) << "'s of tenant " << made.token().tenant()
               << "; valid until "
               << google::protobuf::util::TimeUtil::ToString(made.token().expire_time()) << "\n";
  return kExitOk;
}

absl::StatusOr<int> ListTokens(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  ASSIGN_OR_RETURN(
      const v1::ListTokensResponse tokens,
      AllPages(connection, &v1::FineTuning::Stub::ListTokens, v1::ListTokensRequest()));
  if (line.output == Output::kJson) {
    terminal.out << JsonText(ToJson(tokens));
    return kExitOk;
  }
  using google::protobuf::util::TimeUtil;
  Table table({"TOKEN", "TENANT", "ROLE", "STATE", "CREATED", "EXPIRES"});
  for (const v1::Token& token : tokens.tokens())
    table.AddRow({token.id(), token.tenant(), RoleOf(token), StateOf(token),
                  TimeUtil::ToString(token.create_time()),
                  TimeUtil::ToString(token.expire_time())});
  table.Print(terminal.out);
  return kExitOk;
}

absl::StatusOr<int> RevokeTokens(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  for (const std::string& id : line.tokens) {
    v1::RevokeTokenRequest request;
    request.set_token_id(id);
    ASSIGN_OR_RETURN(const v1::Token token,
                     connection.Call(&v1::FineTuning::Stub::RevokeToken, request));
    if (line.output == Output::kJson)
      terminal.out << JsonText(ToJson(token));
    else
      terminal.out << token.id() << " revoked\n";
  }
  return kExitOk;
}

}  // namespace

absl::StatusOr<int> ManageTokens(const CommandLine& line, Terminal& terminal) {
  if (line.action == "create") return CreateToken(line, terminal);
  return line.action == "list" ? ListTokens(line, terminal) : RevokeTokens(line, terminal);
}

}  // namespace snug::client
