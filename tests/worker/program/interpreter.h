// Executes a tape in doubles, without torch: plain loops over an arena whose 4-byte elements are
// doubles here. What it computes follows from the op's definition alone, so it is an oracle for
// lowering: any plan must give bitwise the gradients of any other. Regions of the arena are
// poisoned (NaN) before a slot's first and after its last instruction, so that a read outside a
// lifetime shows.
#ifndef TESTS_WORKER_PROGRAM_INTERPRETER_H_
#define TESTS_WORKER_PROGRAM_INTERPRETER_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tests/worker/program/copy_order.h"
#include "tests/worker/program/held_codes.h"
#include "tests/worker/program/toy_batch.h"
#include "tests/worker/program/toy_numbers.h"
#include "worker/program/program.h"
#include "worker/program/tape.h"

namespace snug::program {

class Interpreter {
 public:
  Interpreter(const Program& program, const std::vector<std::vector<double>>& parameters);

  // From here on an activation's input that a plan holds in two bits has the slope that this gives;
  // before, its own: what comes back of a code is the value bit by bit, as of any other form.
  using Slope = double (*)(Activation activation, double x);
  void UseTwoBitSlope(Slope slope) { two_bit_slope_ = slope; }

  // From here on what is run again does not drop what it dropped before.
  void DrawOtherMasksAgain() { other_masks_ = true; }

  CopyOrder& copies() { return copies_; }

  // Sum of the losses; gradients() are those of the sum.
  double Run(const Tape& tape, const ToyBatch& batch);
  const std::vector<std::vector<double>>& gradients() const { return gradients_; }

 private:
  struct View {
    double* at = nullptr;
    double* row(int64_t r) const { return at + r * width; }
    int64_t width = 0;
    explicit operator bool() const { return at != nullptr; }
  };

  void RunLine(size_t t);
  void Compute(const Instruction& line);  // On the thread of its stream.
  void RunLoop(size_t t);
  void Forward(const Instruction& line, const Op& op);
  void Backward(const Instruction& line, const Op& op);
  void LoraDownForward(const Op& op, const double* x, int64_t width, double* za) const;
  // Of row n.
  void LoraDownBackward(const Instruction& line, const Op& op, int64_t n);
  void NormalizeForward(const Instruction& line, const Op& op, int64_t n) const;
  int64_t Token(int64_t n, Ids ids = Ids::kTokens) const {
    return (ids == Ids::kSource ? batch_->source_ids : batch_->ids)[static_cast<size_t>(n)];
  }
  std::vector<double> EmbeddingColumn(const Op& op, int64_t n) const;
  void LoraEmbeddingBackward(const Instruction& line, const Op& op, int64_t n);
  void NormalizeBackward(const Instruction& line, const Op& op, int64_t n);
  using RowPositions = std::vector<std::pair<int64_t, int64_t>>;
  // Of the table that an op reads, the row of token n.
  int64_t RowOfTable(const Op& op, int64_t n, const RowPositions& positions) const;
  std::vector<double> Patch(const Op& op, int64_t n) const;
  static size_t RowInPlace(const Op& op, int64_t position);
  // Of row n, which is that far into its document.
  void PatchEmbeddingForward(const Instruction& line, const Op& op, int64_t n,
                             int64_t position) const;
  void PatchEmbeddingBackward(const Instruction& line, const Op& op, int64_t n, int64_t position);
  void RmsNormForward(const Instruction& line, const Op& op, int64_t n) const;
  void RmsNormBackward(const Instruction& line, const Op& op, int64_t n);
  void LinearBackward(const Instruction& line, const Op& op, int64_t n);
  void HeadLoss(const Instruction& line, const Op& op, bool with_gradient);
  // A document's queries and keys, the first of each and how many; `width`: of a part of a window.
  struct Attended {
    int64_t query, queries, key, keys, width = 0;
  };
  std::vector<Attended> AttendedOf(const Instruction& line) const;
  static std::vector<Attended> PartsOfWindows(const PatchOrder& order, size_t images);
  void AttentionForward(const Instruction& line, const Op& op);
  void AttentionForward(const Instruction& line, const Op& op, const Attended& at);
  void AttentionBackward(const Instruction& line, const Op& op);
  void AttentionBackward(const Instruction& line, const Op& op, const Attended& at);
  // Where a head's bias of query n and key m of a document is in the op's parameter.
  std::optional<size_t> BiasOf(const Op& op, const Attended& at, int64_t head, int64_t n,
                               int64_t m) const;
  // Of row n, of ops that take each element by itself.
  void ElementwiseForward(const Instruction& line, const Op& op, int64_t n);
  void ElementwiseBackward(const Instruction& line, const Op& op, int64_t n);
  void FixedForward(const Instruction& line, const Op& op, int64_t n) const;
  void ActivatedForward(const Instruction& line, const Op& op, int64_t n);
  void GluBackward(const Instruction& line, const Op& op, int64_t n);
  void ActivationBackward(const Instruction& line, const Op& op, int64_t n);
  double SlopeAt(const Instruction& line, const Op& op, double x) const;
  // Input 0 in a backward: itself, or what the form in its place stands for.
  View Taken(const Instruction& line) const;
  void ChangeRows(const Instruction& line, const Op& op);
  void ReorderRows(const Instruction& line, const Op& op);
  void MeanRows(const Instruction& line);
  // What stands for a row where masks are drawn: itself, or its document.
  int64_t DrawnRow(const Instruction& line, const Op& op, int64_t row) const;
  int64_t Count(const Operand& operand) const;  // Its rows, in a loop those of the pass.
  int64_t AllRows(const Operand& operand) const;
  int64_t FirstRow(const Operand& operand) const;  // Of its slot's, in this pass of a loop.
  // What the code of rows of x in `form` stands for.
  void WriteCodes(const Operand& form, const View& x, int64_t rows);
  View At(const Operand& operand) const;
  View In(const Instruction& line, size_t i) const;
  View Out(const Instruction& line, size_t i) const;
  View DOut(const Instruction& line, size_t i) const;
  View DIn(const Instruction& line, size_t i) const;
  // Of the instruction at hand: its parameter i, and that one's gradient where it is wanted.
  const std::vector<double>& Weight(size_t i) const;
  double* Gradient(size_t i);
  double* InSlot(int32_t slot);
  void Update(const Instruction& line);
  // NaN, where the tape begins a gradient of a parameter; zeros where it gives none.
  void SpoilGradients(const Tape& tape);
  // Those of the line: zeros.
  void BeginGradients(const Instruction& line);
  void Form(const Instruction& line);
  void Copy(const Instruction& line);
  std::vector<double>& MemoryOf(Region region) { return region == Region::kHost ? host_ : arena_; }
  void Poison(int32_t slot);
  void PoisonAround(int32_t instruction, bool before);

  const Program& program_;
  const std::vector<std::vector<double>>& parameters_;
  std::vector<std::vector<double>> gradients_;
  const Tape* tape_ = nullptr;
  const ToyBatch* batch_ = nullptr;
  static inline thread_local const Instruction* line_ = nullptr;  // A stream's, on its thread,
  static inline thread_local bool in_loop_ = false;               // beside those of others.
  size_t loop_line_ = 0;
  bool last_pass_ = true;
  int64_t first_row_ = 0, rows_of_pass_ = 0;
  std::vector<double> arena_, host_;
  mutable HeldCodes coded_;
  Slope two_bit_slope_ = nullptr;
  bool other_masks_ = false;
  CopyOrder copies_;
  double loss_ = 0.0;
};

}  // namespace snug::program

#endif  // TESTS_WORKER_PROGRAM_INTERPRETER_H_
