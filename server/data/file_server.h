// Opens files for a process that may open none itself: snug-prepare, which reads what strangers
// have written. It is told which files there are, and asks for each by its path; the daemon opens
// it with the rights of the job's owner, at that moment, and hands it on.
//
// The process gets two descriptors. A file lists the paths, each ended by a zero byte. Over a
// socket (SOCK_SEQPACKET) it asks: a message is a path, with one end of a pair of such sockets, on
// which the answer comes: four bytes, 0 and beside it the file's descriptor, or an errno. So
// processes that it has forked may ask at once. What asks for anything else is not answered, and
// its socket closed. (The other side: worker/prepare/files/given.py.)
#ifndef SERVER_DATA_FILE_SERVER_H_
#define SERVER_DATA_FILE_SERVER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace snug::server {

class FileServer {
 public:
  // A descriptor, which the server closes; below 0: errno says why. (EXDEV, of what lies outside a
  // user's roots, is EACCES to the process.) Called by one thread.
  using Opener = std::function<int(const std::string& path)>;

  // An error where descriptors or memory are short.
  static absl::StatusOr<std::unique_ptr<FileServer>> Start(std::set<std::string> paths,
                                                           Opener open);
  FileServer(const FileServer&) = delete;
  FileServer& operator=(const FileServer&) = delete;
  ~FileServer();

  // For the process: the socket and the list.
  int socket() const { return theirs_; }
  int list() const { return list_; }

  // Of the first that it lists and could not hand on: errno; 0: none.
  int error() const { return error_; }

 private:
  FileServer(std::set<std::string> paths, Opener open);
  absl::Status Listen();
  void Serve();
  void Answer(const std::string& path, int answers);

  const std::set<std::string> paths_;
  const Opener open_;
  int ours_ = -1, theirs_ = -1, list_ = -1;
  std::atomic<int> error_ = 0;
  std::thread thread_;
};

}  // namespace snug::server

#endif  // SERVER_DATA_FILE_SERVER_H_
