// How a batch of changes gets onto the disk: all of it, or those of it that may; and what is looked
// at before anybody is told.
#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/job_store.h"
#include "server/job/log.h"

namespace snug::server {
namespace {

constexpr int kManyWalPages = 4096;  // 16 MiB: written back before more is added.

// What ends the whole batch, whichever change it came with.
bool IsOfTheFile(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsDataLoss(status);
}

}  // namespace

std::vector<absl::Status> JobStore::CommitBatch(const std::vector<StoreThread::Task*>& tasks) {
  std::vector<absl::Status> results(tasks.size());
  std::vector<StoreThread::Task*> wanted;
  std::vector<size_t> places;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (read_only() && tasks[i]->urgency == Urgency::kRefusable) {
      results[i] = StoreFull();
    } else {
      wanted.push_back(tasks[i]);
      places.push_back(i);
    }
  }
  if (wanted.empty()) return results;
  std::vector<absl::Status> written = TryBatch(wanted);
  if (absl::IsResourceExhausted(written.front())) RetryFull(wanted, written);
  for (const absl::Status& status : written)
    if (absl::IsDataLoss(status)) options_.fatal(status);
  const absl::Status stands = FilesStand();
  if (!stands.ok()) options_.fatal(stands);
  const absl::Status testified = Testify();
  if (!testified.ok()) spdlog::warn("{}", testified.message());
  if (database_->wal_pages() > kManyWalPages) DoMaintain().IgnoreError();
  for (size_t i = 0; i < places.size(); ++i) results[places[i]] = std::move(written[i]);
  return results;
}

// One status for each. Where the file itself is at fault, all have that one. Nearly every batch
// lands whole; one that does not is begun again with each change in a savepoint of its own.
std::vector<absl::Status> JobStore::TryBatch(const std::vector<StoreThread::Task*>& tasks) {
  const absl::Status whole = database_->Transaction([&] {
    for (StoreThread::Task* task : tasks) RETURN_IF_ERROR(task->work(*database_));
    return absl::OkStatus();
  });
  if (whole.ok() || IsOfTheFile(whole) || tasks.size() == 1)
    return std::vector<absl::Status>(tasks.size(), whole);
  return TryEach(tasks);
}

std::vector<absl::Status> JobStore::TryEach(const std::vector<StoreThread::Task*>& tasks) {
  std::vector<absl::Status> results(tasks.size());
  const absl::Status whole = database_->Transaction([&] {
    for (size_t i = 0; i < tasks.size(); ++i) {
      results[i] = database_->Savepoint([&] { return tasks[i]->work(*database_); });
      if (IsOfTheFile(results[i])) return results[i];
    }
    return absl::OkStatus();
  });
  return whole.ok() ? results : std::vector<absl::Status>(tasks.size(), whole);
}

// The disk is full: the ballast's space is for what must land, each change by itself.
void JobStore::RetryFull(const std::vector<StoreThread::Task*>& tasks,
                         std::vector<absl::Status>& results) {
  spdlog::error("the disk of the state directory is full: {}", results.front().message());
  const bool freed = unlink(PathOf("ballast").c_str()) == 0;
  ballast_missing_ = true;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (freed && tasks[i]->urgency == Urgency::kMustLand) results[i] = TryBatch({tasks[i]})[0];
    if (absl::IsResourceExhausted(results[i])) results[i] = StoreFull();
  }
}

absl::Status JobStore::Testify() {
  Testimony now{.instance = instance_uuid_};
  ASSIGN_OR_RETURN(now.sequence, database_->QueryInt("SELECT max(seq) FROM events"));
  ASSIGN_OR_RETURN(now.jobs, database_->QueryInt("SELECT jobs FROM counts"));
  return witness_->Write(now);
}

// What is written to a file that has lost its name is gone at the next start.
absl::Status JobStore::FilesStand() {
  for (const auto& [path, opened] : files_) {
    struct stat now {};
    if (stat(path.c_str(), &now) != 0)
      return absl::DataLossError(
          absl::StrCat(path, " was removed while snugd used it: what is stored now would be lost"));
    if (now.st_ino != opened.st_ino || now.st_dev != opened.st_dev)
      return absl::DataLossError(absl::StrCat(
          path, " was replaced while snugd used it: what is stored now would be lost"));
  }
  return absl::OkStatus();
}

absl::Status JobStore::DoMaintain() {
  absl::Status status = FilesStand();
  if (status.ok()) status = database_->Execute("PRAGMA wal_checkpoint(PASSIVE)");
  if (absl::IsDataLoss(status)) options_.fatal(status);
  witness_->Sync().IgnoreError();
  if (ballast_missing_) ballast_missing_ = !MakeBallast();
  return status;
}

bool JobStore::MakeBallast() {
  if (options_.ballast_bytes == 0) return true;
  const std::string path = PathOf("ballast");
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  const bool made = posix_fallocate(fd, 0, options_.ballast_bytes) == 0;
  close(fd);
  if (!made) unlink(path.c_str());
  return made;
}

}  // namespace snug::server
