#include "server/job/principal.h"

#include <grp.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace snug::server {
namespace {

constexpr absl::string_view kUid = "uid:";
constexpr absl::string_view kTenant = "tenant:";
constexpr int kMaxGroups = 65536;  // NGROUPS_MAX of Linux.
constexpr size_t kPasswdBytes = 64 << 10;

bool IsTrusted(uid_t uid) { return uid == 0 || uid == geteuid(); }

// Of the account database; one who is not in it has no group.
void FindGroups(Principal& principal) {
  passwd entry = {};
  passwd* found = nullptr;
  std::vector<char> text(kPasswdBytes);
  principal.gid = kNoUser;
  if (getpwuid_r(principal.uid, &entry, text.data(), text.size(), &found) != 0 || found == nullptr)
    return;
  principal.gid = entry.pw_gid;
  int count = 64;
  principal.groups.resize(static_cast<size_t>(count));
  while (getgrouplist(entry.pw_name, entry.pw_gid, principal.groups.data(), &count) < 0) {
    if (count > kMaxGroups) count = 0;
    principal.groups.resize(static_cast<size_t>(count));
    if (count == 0) return;
  }
  principal.groups.resize(static_cast<size_t>(count));
}

}  // namespace

std::string Principal::name() const {
  return tenant.empty() ? absl::StrCat(kUid, uid) : absl::StrCat(kTenant, tenant);
}

bool Principal::SeesAll() const {
  if (trusted) return true;
  return !tenant.empty() && (role == v1::Token::ROLE_OPERATOR || role == v1::Token::ROLE_AUDITOR);
}

Principal DaemonPrincipal() { return {.uid = geteuid(), .gid = getegid(), .trusted = true}; }

std::string TenantOf(absl::string_view owner) {
  return std::string(absl::ConsumePrefix(&owner, kTenant) ? owner : kDefaultTenant);
}

bool PeerOf(int socket, Principal* principal) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  *principal = {.uid = peer.uid, .gid = peer.gid, .trusted = IsTrusted(peer.uid)};
  std::vector<gid_t> groups(kMaxGroups);
  socklen_t bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) == 0)
    principal->groups.assign(groups.begin(), groups.begin() + bytes / sizeof(gid_t));
  return true;
}

Principal OwnerOf(const v1::Job& job) {
  absl::string_view name = job.owner();
  if (name.empty()) return DaemonPrincipal();
  Principal owner{.uid = kNoUser, .gid = kNoUser};
  if (absl::ConsumePrefix(&name, kTenant)) {
    owner.tenant = std::string(name);
    return owner;
  }
  uint32_t uid = 0;
  if (!absl::ConsumePrefix(&name, kUid) || !absl::SimpleAtoi(name, &uid)) return owner;
  owner.uid = uid;
  owner.trusted = IsTrusted(uid);
  if (!owner.trusted) FindGroups(owner);
  return owner;
}

// The system calls themselves change this thread alone; glibc's change them all. Root keeps what it
// takes to change back: only rights over files go with the fsuid.
AsPrincipal::AsPrincipal(const Principal& principal)
    : changes_(!principal.trusted && principal.tenant.empty() && geteuid() == 0) {
  if (!changes_) return;
  const int had = getgroups(0, nullptr);
  groups_before_.resize(had < 0 ? 0 : static_cast<size_t>(had));
  ok_ = getgroups(had, groups_before_.data()) == had &&
        syscall(SYS_setgroups, principal.groups.size(), principal.groups.data()) == 0;
  if (!ok_) return;
  syscall(SYS_setfsgid, principal.gid);
  syscall(SYS_setfsuid, principal.uid);
  // Neither says whether it worked; an id that is none tells what there is, and changes nothing.
  ok_ = syscall(SYS_setfsuid, -1) == static_cast<long>(principal.uid) &&
        syscall(SYS_setfsgid, -1) == static_cast<long>(principal.gid);
  if (!ok_) Restore();
}

AsPrincipal::~AsPrincipal() {
  if (changes_ && ok_) Restore();
}

// A thread that went on with another's rights would act for him: then rather none goes on.
void AsPrincipal::Restore() {
  syscall(SYS_setfsuid, geteuid());
  syscall(SYS_setfsgid, getegid());
  if (syscall(SYS_setgroups, groups_before_.size(), groups_before_.data()) != 0) abort();
}

}  // namespace snug::server
