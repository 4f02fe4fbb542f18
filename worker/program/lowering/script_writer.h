// The writer of a script, for its own files alone: script.cc has the order of lines, values and
// their forms; script_loops.cc what runs in loops; script_gradients.cc gradients of either kind.
#ifndef WORKER_PROGRAM_LOWERING_SCRIPT_WRITER_H_
#define WORKER_PROGRAM_LOWERING_SCRIPT_WRITER_H_

#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "worker/program/lowering/script.h"

namespace snug::program {

// A line that is being written.
struct Line : Instruction {
  LineNeeds needs;
};

class ScriptWriter {
 public:
  ScriptWriter(const Program& program, const PlannedGraph& planned, const LowerOptions& options);
  Script Write();

 private:
  static size_t Index(int32_t i) { return static_cast<size_t>(i); }
  const Node& NodeAt(int32_t n) const { return graph_.nodes[Index(n)]; }
  const Op& OpOf(int32_t n) const { return *NodeAt(n).op; }
  const GraphValue& ValueAt(int32_t v) const { return graph_.values[Index(v)]; }
  const Loop& LoopAt(int32_t loop) const { return loops_.loops[Index(loop)]; }
  Instance& At(int32_t instance) { return script_.instances[Index(instance)]; }
  int32_t Now() const { return static_cast<int32_t>(script_.lines.size()); }
  bool IsInner(int32_t value) const { return loops_.inner[Index(value)]; }
  int32_t LoopOf(int32_t node) const { return loops_.of_node[Index(node)]; }

  void BeginPass(int32_t block);
  void RunStepForward(const Step& step);
  void RunStepBackward(const Step& step);
  void RunForward(int32_t n, std::vector<int32_t>& instances, bool recomputed);
  void RunBackward(const Node& node);

  // Makes `value` there in backward, if it is not: it may have to run ops.
  void Materialise(int32_t value);
  // The instance that holds it then.
  int32_t InBackward(int32_t value);
  // Makes it again of what its reader gave and read beside it.
  void Invert(int32_t value);
  // Before the backward of its reader: that runs the same ops again, and what they made of the
  // value is not needed behind it.
  void InvertInput(int32_t n);

  // Lines and their operands. The shape of a value is that of its gradient, which is of the compute
  // type where the value is no floating-point number.
  static Line NewLine(const Node& node, Direction direction);
  Operand OperandOf(int32_t v) const;
  Operand GradientOf(int32_t v) const;
  int32_t AddInstance(const Operand& shape);
  // `value` as an operand that the line at hand reads, held by `instance`,
  Operand Read(int32_t value, int32_t instance) { return Read(OperandOf(value), instance); }
  Operand Read(Operand shape, int32_t instance);
  // and as one that it writes first.
  Operand Fresh(Line& line, Operand shape, bool of_pass);
  Operand FreshGradient(Line& line, int32_t v) { return Fresh(line, GradientOf(v), IsInner(v)); }
  // Adds the line, with what it costs by the shapes of its node.
  void Finish(Line& line, const Node& node);
  int64_t Passes() const;  // Of a line at hand: of its loop, or one.
  void Push(const Line& line);

  // Forms: those that ops of no block write and read, and those that are by their reader.
  void PackOutputs(int32_t n);
  void Pack(int32_t value);
  void Unpack(int32_t value);
  // The line that makes the form of `value`, or the value of its form.
  Line FormLine(int32_t value, const Op* op, Direction direction) const;
  void FinishForm(Line& line);
  // Whether `node`'s backward takes a form in the place of its input i.
  bool TakesFormOf(const Node& node, size_t i) const;
  // Behind the outputs of the op that reads them.
  void WriteFormsTaken(Line& line, const Node& node);
  // The form of `value`, as an operand that the line at hand reads.
  Operand ReadForm(int32_t value);
  // Forms that the line writes beside its outputs, or reads in the place of inputs.
  void CountForms(Line& line, const Node& node) const;

  // Loops. Lines from BeginLoop to EndLoop are the body; what comes from outside or goes there
  // lives as long as the loop.
  void BeginLoop(const Loop& loop, Direction direction, bool recomputed);
  void EndLoop();
  void RunLoopForward(const Loop& loop);
  // For what is made there and read outside.
  void RunLoopAgain(const Loop& loop);
  void RunLoopBackward(const Loop& loop);
  // All that its backward reads, or that is read where it runs ops again.
  std::vector<int32_t> NeededByLoop(const Loop& loop) const;
  // Whether backward has the value from another run of its op, outside of any loop.
  bool IsMadeAgain(int32_t value) const;
  bool IsMadeIn(const Loop& loop, int32_t value) const;

  void WantInputGradient(Line& line, const Node& node, size_t i,
                         std::vector<std::pair<int32_t, int32_t>>& sums);
  // Whether another value's gradient, still to be read, is the same instance: one passed on.
  bool IsShared(int32_t value) const;
  // The gradient of `value` becomes what is there and `share`.
  void AddGradients(const Node& node, int32_t value, int32_t share);
  // The gradient of each input is that of the output; where it has one already, the two are added.
  void PassGradientOn(const Node& node, const OpRow& row);

  // Gradients of parameters that are released: how many backwards add into each,
  void CountWriters();
  // those that the node's backward adds into, as visit(operand number, parameter);
  template <typename Visit>
  void ForEachReleased(const Node& node, const Visit& visit) const {
    if (writers_.empty() || !node.backward) return;
    for (size_t i = 0; i < node.op->parameters.size(); ++i) {
      const bool wanted = (node.wanted.parameters >> i & 1) != 0;
      if (wanted && program_.parameters[Index(node.parameters[i])].released)
        visit(i, node.parameters[i]);
    }
  }
  // and behind the node, or the loop that it lies in, those that it was the last to add into.
  void EndGradients(const Node& node);
  // Where the line adds up the gradients of parameters, and which of them begin there.
  void BeginGradients(Line& line, const Node& node);

  const Program& program_;
  const Graph& graph_;
  const LowerOptions& options_;
  const std::vector<SiteStash>& stashes_;  // By value.
  const Loops& loops_;
  Demand demand_;
  std::vector<bool> ahead_;         // By block: whether it recovers ahead.
  int32_t block_ = 0;               // Whose pass is being written.
  int32_t loop_head_ = kNone;       // Of the loop whose body is being written: its line,
  TapeKey key_;                     // the sizes of one pass,
  std::vector<int32_t> inner_;      // and by value that is made in it: its instance.
  std::vector<int32_t> forward_;    // By value: its instance,
  std::vector<Operand> forms_;      // a form of it that is held,
  std::vector<int32_t> again_;      // its materialisation in backward,
  std::vector<int32_t> gradient_;   // its gradient so far.
  std::vector<int32_t> passed_on_;  // Values whose gradient may be another's as well.
  std::vector<int32_t> writers_;    // By parameter that is released: backwards that will still add,
  std::vector<int32_t> parameter_gradient_;      // and the instance of its gradient.
  std::set<std::pair<int32_t, int64_t>> begun_;  // Gradients of a parameter's rows from one on.
  Script script_;
};

}  // namespace snug::program

#endif  // WORKER_PROGRAM_LOWERING_SCRIPT_WRITER_H_
