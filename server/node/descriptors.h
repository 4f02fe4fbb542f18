// Descriptors kept back for what the daemon itself must do whatever clients hold open: ask whether
// a worker lives, start one, read how one ended.
//
// The reserve takes the highest numbers that the process may use, so nothing else can have them
// while it holds. A loan gives some of them free for as long as it lasts; whoever accepts
// connections meanwhile tells by the number that it got one of those, and gives it back.
//
// What is kept back are numbers of this process: all of them are one open file, so a loan helps
// where this process has no number left (EMFILE), and not where the whole machine may open no more
// files (ENFILE). There opening fails, and what needs it is tried again.
#ifndef SERVER_NODE_DESCRIPTORS_H_
#define SERVER_NODE_DESCRIPTORS_H_

namespace snug::server {

inline constexpr int kMaxDescriptors = 65536;  // More costs kernel memory and serves nobody.
inline constexpr int kFewDescriptors = 4096;   // With fewer than these, floods are felt.

// Raises this process's limit as far as kMaxDescriptors and takes the reserve: 64, or a quarter of
// a small limit. Gives the limit. Once per process, before anything is served.
int ReserveDescriptors();

// Whether a descriptor that was just accepted may be kept: it is none of the reserve's.
bool IsSpareDescriptor(int fd);

// accept4. Where this process or the machine has no descriptors left it fails 50 ms later: the
// connection stays in the listener's queue, and a loop that calls this at once again does not spin.
int AcceptOrPause(int listener, int flags);

// Some of the reserve for what is opened while this lives. Loans may be nested and held by several
// threads; a loan that finds the reserve lent out is empty, and opening fails as it would have.
class DescriptorLoan {
 public:
  DescriptorLoan();
  ~DescriptorLoan();
  DescriptorLoan(const DescriptorLoan&) = delete;
  DescriptorLoan& operator=(const DescriptorLoan&) = delete;
};

}  // namespace snug::server

#endif  // SERVER_NODE_DESCRIPTORS_H_
