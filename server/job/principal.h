// Who asks. A client of the unix socket is the user that the kernel says it is (SO_PEERCRED); one
// that came over TLS is of the tenant that its token or its certificate is of.
#ifndef SERVER_JOB_PRINCIPAL_H_
#define SERVER_JOB_PRINCIPAL_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "snug/v1/job.pb.h"
#include "snug/v1/token.pb.h"

namespace snug::server {

// Of who has none of this machine's accounts.
inline constexpr uid_t kNoUser = 65534;

struct Principal {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups = {};
  // The daemon's own user and root, who can read its state anyway: every job, every path.
  bool trusted = false;
  // Of one that came over TLS, who is no user of this machine; else empty.
  std::string tenant = {};
  v1::Token::Role role = v1::Token::ROLE_USER;  // In that tenant.
  std::string credential = {};  // That he showed: token:ID, or the certificate's name.
  bool reads_only = false;      // He is in a session of a browser.

  std::string name() const;  // Whose jobs are his: uid:1000, tenant:NAME.
  bool SeesAll() const;
  // The same is said of a job that he may not see as of one that does not exist.
  bool MaySee(const v1::Job& job) const { return SeesAll() || job.owner() == name(); }
};

// The daemon itself.
Principal DaemonPrincipal();

// Of the unix socket's users, all of them.
inline constexpr absl::string_view kDefaultTenant = "default";

// The tenant of a job's owner.
std::string TenantOf(absl::string_view owner);

// Of a connected unix socket. False: the kernel does not say.
bool PeerOf(int socket, Principal* principal);

// The owner of a stored job, with the groups that he has now. A job without an owner is from before
// there were any: the daemon's.
Principal OwnerOf(const v1::Job& job);

// While it lives, this thread opens files with the principal's rights, by the kernel's own check.
// Nothing changes for one who is trusted, nor for a tenant, whose rights are his roots, nor where
// the daemon is not root and cannot.
class AsPrincipal {
 public:
  explicit AsPrincipal(const Principal& principal);
  // False: root it is, and may not become him. Then nothing may be opened for him.
  bool ok() const { return ok_; }
  AsPrincipal(const AsPrincipal&) = delete;
  AsPrincipal& operator=(const AsPrincipal&) = delete;
  ~AsPrincipal();

 private:
  void Restore();

  const bool changes_;
  bool ok_ = true;
  std::vector<gid_t> groups_before_;
};

}  // namespace snug::server

#endif  // SERVER_JOB_PRINCIPAL_H_
