#include "worker/program/lowering/streams.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace snug::program {
namespace {

// Lines [first, end) of the script as it was.
struct Group {
  size_t first = 0, end = 0;
  bool from_host = false;
};

class Overlapper {
 public:
  explicit Overlapper(Script before) : before_(std::move(before)) { FindGroups(); }

  Script Overlap() {
    if (groups_.empty()) return std::move(before_);
    const size_t lines = before_.lines.size();
    place_.resize(lines + 1);
    begin_.resize(lines + 1);
    end_.resize(lines + 1);
    after_.lines.reserve(lines + 4 * groups_.size());
    auto group = groups_.begin();
    for (size_t t = 0; t < lines;) {
      place_[t] = Now();
      if (t == backward_) {
        Wait();
        BeginNextFromHost();
      }
      if (group == groups_.end() || group->first != t) {
        begin_[t] = end_[t] = Now();
        Move(t++);
        continue;
      }
      Wait();
      if (group->from_host)
        BeginNextFromHost();
      else
        Begin(*group);
      t = group++->end;
    }
    place_[lines] = Now();
    MoveInstances();
    for (int32_t pass : before_.passes) after_.passes.push_back(place_[static_cast<size_t>(pass)]);
    return std::move(after_);
  }

 private:
  bool IsCopy(size_t t) const { return before_.lines[t].kind == Instruction::Kind::kCopy; }
  int32_t Now() const { return static_cast<int32_t>(after_.lines.size()); }

  void FindGroups() {
    const size_t lines = before_.lines.size();
    backward_ = lines;
    for (size_t t = 0; t < lines; ++t) {
      const Instruction& line = before_.lines[t];
      const bool backward = line.recomputed || line.direction == Direction::kBackward;
      if (backward) backward_ = std::min(backward_, t);
      if (!IsCopy(t)) continue;
      if (groups_.empty() || groups_.back().end != t || groups_.back().from_host != backward)
        groups_.push_back({t, t, backward});
      groups_.back().end = t + 1;
    }
    const auto first = std::find_if(groups_.begin(), groups_.end(),
                                    [](const Group& group) { return group.from_host; });
    next_from_host_ = static_cast<size_t>(first - groups_.begin());
  }

  void BeginNextFromHost() {
    if (next_from_host_ < groups_.size()) Begin(groups_[next_from_host_++]);
  }

  void Begin(const Group& group) {
    const Instruction& like = before_.lines[group.first];
    Push(Instruction::Kind::kRecord, kMayCopy, kComputeStream, like);
    Push(Instruction::Kind::kWait, kMayCopy, kCopyStream, like);
    for (size_t t = group.first; t < group.end; ++t) {
      begin_[t] = Now();
      Move(t);
      after_.lines.back().stream = kCopyStream;
    }
    Push(Instruction::Kind::kRecord, kIsCopied, kCopyStream, like);
    on_its_way_ = &group;
  }

  // Until what is on its way is there, if anything is.
  void Wait() {
    if (on_its_way_ == nullptr) return;
    const Group& group = *std::exchange(on_its_way_, nullptr);
    for (size_t t = group.first; t < group.end; ++t) end_[t] = Now();
    Push(Instruction::Kind::kWait, kIsCopied, kComputeStream, before_.lines[group.first]);
  }

  void Move(size_t t) {
    after_.lines.push_back(before_.lines[t]);
    after_.needs.push_back(before_.needs[t]);
  }

  // In the place of the copy `like`, by which messages name it.
  void Push(Instruction::Kind kind, int16_t event, uint8_t stream, const Instruction& like) {
    after_.lines.push_back(EventLine(kind, event, stream, like));
    after_.needs.emplace_back();
  }

  void MoveInstances() {
    after_.instances = std::move(before_.instances);
    for (Instance& instance : after_.instances) {
      instance.birth = begin_[static_cast<size_t>(instance.birth)];
      instance.last = end_[static_cast<size_t>(instance.last)];
    }
    // What a copy reads may be read for the last time before it has been waited for.
    for (const Group& group : groups_) {
      for (size_t t = group.first; t < group.end; ++t) {
        Instance& read =
            after_.instances[static_cast<size_t>(before_.lines[t].operands.in[0].slot)];
        read.last = std::max(read.last, end_[t]);
      }
    }
  }

  Script before_, after_;
  std::vector<Group> groups_;
  size_t backward_ = 0;        // The first line of backward.
  size_t next_from_host_ = 0;  // Of groups_.
  const Group* on_its_way_ = nullptr;
  // By line as it was: where what stands in its place begins, where itself begins, where it is
  // done.
  std::vector<int32_t> place_, begin_, end_;
};

}  // namespace

Script OverlapCopies(Script script) { return Overlapper(std::move(script)).Overlap(); }

}  // namespace snug::program
