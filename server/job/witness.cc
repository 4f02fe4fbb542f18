#include "server/job/witness.h"

#include <fcntl.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/data/sha256.h"
#include "server/failpoint.h"

namespace snug::server {
namespace {

constexpr size_t kBlockBytes = 512;

struct Block {
  Testimony testimony;
  int64_t writes = 0;
};

std::string Line(const Testimony& testimony, int64_t writes) {
  const std::string line = absl::StrCat("snug-witness 1 ", testimony.instance, " ",
                                        testimony.sequence, " ", testimony.jobs, " ", writes);
  return absl::StrCat(line, " ", Sha256Hex(line));
}

std::optional<Block> Parse(absl::string_view text) {
  text = absl::StripTrailingAsciiWhitespace(text);
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  Block block;
  if (words.size() != 7 || !absl::SimpleAtoi(words[3], &block.testimony.sequence) ||
      !absl::SimpleAtoi(words[4], &block.testimony.jobs) ||
      !absl::SimpleAtoi(words[5], &block.writes))
    return std::nullopt;
  block.testimony.instance = words[2];
  if (Line(block.testimony, block.writes) != text) return std::nullopt;
  return block;
}

absl::Status Loss(const std::string& what) {
  return absl::DataLossError(absl::StrCat(
      what,
      ". Put back what was taken away, or start once with --restore BACKUP, or, to go on with what "
      "there is, once with --accept-loss"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Witness>> Witness::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  std::unique_ptr<Witness> witness(new Witness(fd));
  std::string text(2 * kBlockBytes, '\0');
  const ssize_t got = pread(fd, text.data(), text.size(), 0);
  if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  text.resize(static_cast<size_t>(got));
  for (size_t at = 0; at < text.size(); at += kBlockBytes) {
    const std::optional<Block> block = Parse(text.substr(at, kBlockBytes));
    if (!block || block->writes <= witness->writes_) continue;
    witness->writes_ = block->writes;
    witness->last_ = block->testimony;
  }
  if (got > 0 && !witness->last_)
    return absl::DataLossError(
        absl::StrCat(path, " cannot be read: to do without it, start once with --accept-loss"));
  return witness;
}

Witness::~Witness() { close(fd_); }

absl::Status Witness::Write(const Testimony& testimony) {
  if (FAILS_AT("witness.write")) return absl::ResourceExhaustedError("a failed write");
  std::string block = Line(testimony, writes_ + 1);
  block.resize(kBlockBytes, ' ');
  block.back() = '\n';
  const auto offset = static_cast<off_t>((writes_ + 1) % 2 * kBlockBytes);
  if (TEMP_FAILURE_RETRY(pwrite(fd_, block.data(), block.size(), offset)) !=
      static_cast<ssize_t>(block.size()))
    return absl::ErrnoToStatus(errno, "cannot write the store's witness");
  FAILPOINT("witness.written");
  ++writes_;
  last_ = testimony;
  return absl::OkStatus();
}

absl::Status Witness::Sync() {
  if (FAILS_AT("witness.sync")) return absl::DataLossError("a failed fsync");
  if (fdatasync(fd_) != 0) return absl::ErrnoToStatus(errno, "fdatasync of the store's witness");
  return absl::OkStatus();
}

absl::Status Compare(const Testimony& seen, const std::optional<Testimony>& has,
                     const std::string& database) {
  if (!has)
    return Loss(absl::StrCat(database, " is missing or empty, and has held ", seen.jobs, " jobs"));
  if (has->instance != seen.instance)
    return Loss(absl::StrCat(database, " is of another instance (", has->instance, ", not ",
                             seen.instance, ")"));
  if (has->sequence < seen.sequence)
    return Loss(absl::StrCat(database, " ends at change ", has->sequence, ", and has been at ",
                             seen.sequence,
                             ": it was rolled back, or its -wal file was removed or damaged"));
  if (has->sequence == seen.sequence && has->jobs != seen.jobs)
    return Loss(absl::StrCat(database, " holds ", has->jobs, " jobs, and has held ", seen.jobs,
                             " at the same change"));
  return absl::OkStatus();
}

}  // namespace snug::server
