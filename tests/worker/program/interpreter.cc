#include "tests/worker/program/interpreter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "gtest/gtest.h"
#include "worker/program/stages.h"

namespace snug::program {
namespace {

// A weight W [out, in] as a factor of products, times `scale`; `add`: into what is there.
struct Factor {
  const double* w;
  int64_t in, out;
  double scale = 1.0;
  bool add = false;
};

// y[out] (+)= scale * W x[in]
void TimesTransposed(const Factor& f, const double* x, double* y) {
  for (int64_t o = 0; o < f.out; ++o) {
    double sum = 0.0;
    for (int64_t i = 0; i < f.in; ++i) sum += x[i] * f.w[o * f.in + i];
    y[o] = f.scale * sum + (f.add ? y[o] : 0.0);
  }
}

// dx[in] (+)= scale * dy[out] W
void Times(const Factor& f, const double* dy, double* dx) {
  for (int64_t i = 0; i < f.in; ++i) {
    double sum = 0.0;
    for (int64_t o = 0; o < f.out; ++o) sum += dy[o] * f.w[o * f.in + i];
    dx[i] = f.scale * sum + (f.add ? dx[i] : 0.0);
  }
}

// dW[out, in] += scale * dy[out] x[in]; `f` has the sizes of W.
void AddOuter(const Factor& f, const double* dy, const double* x, double* dw) {
  for (int64_t o = 0; o < f.out; ++o) {
    for (int64_t i = 0; i < f.in; ++i) dw[o * f.in + i] += f.scale * dy[o] * x[i];
  }
}

// The first elements of each head; those of layers that slide by other angles, if they have their
// own.
void Rotate(const double* x, double* y, int64_t position, const OpAttributes& a, double sign) {
  const int64_t turned = a.rotary_width, half = turned / 2;
  const double theta = a.local ? 7.0 : 100.0;
  for (int64_t h = 0; h < a.heads; ++h) {
    const double* from = x + h * a.head_width;
    double* to = y + h * a.head_width;
    for (int64_t i = 0; i < half; ++i) {
      const double angle = sign * static_cast<double>(position) /
                           std::pow(theta, 2.0 * static_cast<double>(i) / turned);
      const double first = from[i], second = from[i + half];
      to[i] = first * std::cos(angle) - second * std::sin(angle);
      to[i + half] = second * std::cos(angle) + first * std::sin(angle);
    }
    std::copy(from + turned, from + a.head_width, to + turned);
  }
}

// Position within the document and the document's first row, by row.
std::vector<std::pair<int64_t, int64_t>> Positions(const std::vector<int>& document_lengths) {
  std::vector<std::pair<int64_t, int64_t>> positions;
  for (int length : document_lengths) {
    const auto begin = static_cast<int64_t>(positions.size());
    for (int i = 0; i < length; ++i) positions.emplace_back(i, begin);
  }
  return positions;
}

}  // namespace

Interpreter::Interpreter(const Program& program, const std::vector<std::vector<double>>& parameters)
    : program_(program), parameters_(parameters) {
  for (const auto& parameter : parameters) gradients_.emplace_back(parameter.size(), 0.0);
}

double Interpreter::Run(const Tape& tape, const ToyBatch& batch) {
  tape_ = &tape;
  batch_ = &batch;
  loss_ = 0.0;
  arena_.assign(static_cast<size_t>(tape.arena_bytes / kToyElement),
                std::numeric_limits<double>::quiet_NaN());
  host_.assign(static_cast<size_t>(tape.host_bytes / kToyElement),
               std::numeric_limits<double>::quiet_NaN());
  coded_.Clear();
  copies_.Begin();
  SpoilGradients(tape);
  for (size_t t = 0; t < tape.instructions.size(); ++t) {
    RunLine(t);
    if (tape.instructions[t].kind != Instruction::Kind::kLoop) continue;
    RunLoop(t);
    t += static_cast<size_t>(tape.instructions[t].loop.lines);
  }
  return loss_;
}

void Interpreter::RunLine(size_t t) {
  const Instruction& line = tape_->instructions[t];
  PoisonAround(static_cast<int32_t>(t), /*before=*/true);
  if (line.kind == Instruction::Kind::kLoop) return;
  if (line.kind == Instruction::Kind::kCopy) {
    Copy(line);
  } else if (line.kind == Instruction::Kind::kRecord || line.kind == Instruction::Kind::kWait) {
    copies_.Order(line);
  } else {
    copies_.Issue(line, [this, &line] { Compute(line); });
  }
  PoisonAround(static_cast<int32_t>(t), /*before=*/false);
  if (!in_loop_) copies_.Go();
}

void Interpreter::Compute(const Instruction& line) {
  line_ = &line;
  if (line.kind == Instruction::Kind::kUpdate) {
    Update(line);
  } else if (line.op->code == OpCode::kQuantize || line.op->code == OpCode::kDequantize ||
             line.op->code == OpCode::kSampleRows) {
    Form(line);
  } else if (line.op->code == OpCode::kSelectRows || line.op->code == OpCode::kMergeRows) {
    ChangeRows(line, *line.op);
  } else if (line.op->code == OpCode::kReorderRows) {
    ReorderRows(line, *line.op);
  } else if (line.op->code == OpCode::kMeanRows) {
    MeanRows(line);
  } else if (line.direction == Direction::kForward || line.op->code == OpCode::kAdd) {
    Forward(line, *line.op);
  } else {
    BeginGradients(line);
    Backward(line, *line.op);
  }
}

// Rows that a loss is taken of, in their order.
std::vector<int64_t> ToyBatch::trained() const {
  std::vector<int64_t> rows;
  for (size_t n = 0; n < labels.size(); ++n) {
    if (labels[n] >= 0) rows.push_back(static_cast<int64_t>(n));
  }
  return rows;
}

std::vector<int> ToyBatch::documents(Rows rows) const {
  if (rows == Rows::kTokens) return document_lengths;
  if (rows == Rows::kSource) return source_lengths;
  if (rows == Rows::kMerged1) return {static_cast<int>(ids.size()) / kToyMerge};
  return {static_cast<int>(trained().size())};
}

int64_t Interpreter::Count(const Operand& operand) const {
  return in_loop_ ? rows_of_pass_ : AllRows(operand);
}

int64_t Interpreter::AllRows(const Operand& operand) const {
  const auto tokens = static_cast<int64_t>(batch_->ids.size());
  if (!program_.config.stages.empty() && operand.rows >= Rows::kMerged1)
    return WithStages({.tokens = tokens}, program_.config).Of(operand.rows);
  const std::vector<int> documents = batch_->documents(operand.rows);
  return std::accumulate(documents.begin(), documents.end(), int64_t{0});
}

Interpreter::View Interpreter::At(const Operand& operand) const {
  if (!operand) return {};
  const Slot& slot = tape_->slots[static_cast<size_t>(operand.slot)];
  const auto& memory = slot.region == Region::kHost ? host_ : arena_;
  return {const_cast<double*>(memory.data()) + slot.offset / kToyElement +
              FirstRow(operand) * operand.width,
          operand.width};
}

Interpreter::View Interpreter::In(const Instruction& line, size_t i) const {
  return At(line.operands.in[i]);
}
Interpreter::View Interpreter::Out(const Instruction& line, size_t i) const {
  return At(line.operands.out[i]);
}
Interpreter::View Interpreter::DOut(const Instruction& line, size_t i) const {
  return At(line.operands.d_out[i]);
}
Interpreter::View Interpreter::DIn(const Instruction& line, size_t i) const {
  return At(line.operands.d_in[i]);
}

const std::vector<double>& Interpreter::Weight(size_t i) const {
  return parameters_[static_cast<size_t>(line_->parameters[i])];
}

double* Interpreter::Gradient(size_t i) {
  if ((line_->wanted.parameters >> i & 1) == 0) return nullptr;
  if (line_->gradients[i] != kNoSlot) return InSlot(line_->gradients[i]);
  return gradients_[static_cast<size_t>(line_->parameters[i])].data();
}

void Interpreter::Forward(const Instruction& line, const Op& op) {
  const OpAttributes& a = op.attributes;
  if (op.code == OpCode::kHeadLoss) return HeadLoss(line, op, /*with_gradient=*/false);
  if (op.code == OpCode::kAttention) return AttentionForward(line, op);
  const auto positions = Positions(batch_->documents(line.operands.out[0].rows));
  const View x = op.inputs.empty() ? View{} : In(line, 0);
  const View y = Out(line, 0);
  const int64_t rows = Count(line.operands.out[0]);
  for (int64_t n = 0; n < rows; ++n) {
    switch (op.code) {
      case OpCode::kEmbedding:
        for (int64_t i = 0; i < y.width; ++i)
          y.row(n)[i] = a.scale * Weight(0).data()[RowOfTable(op, n, positions) * y.width + i];
        break;
      case OpCode::kPatchEmbedding:
        PatchEmbeddingForward(line, op, n, positions[static_cast<size_t>(n)].first);
        break;
      case OpCode::kNormalize:
        NormalizeForward(line, op, n);
        break;
      case OpCode::kAffine: {
        const std::vector<double>& gamma = Weight(0);
        for (int64_t i = 0; i < x.width; ++i)
          y.row(n)[i] = x.row(n)[i] * (a.offset + gamma[static_cast<size_t>(i) % gamma.size()]) +
                        (a.bias ? Weight(1)[static_cast<size_t>(i)] : 0.0);
        break;
      }
      case OpCode::kRmsNorm:
        RmsNormForward(line, op, n);
        break;
      case OpCode::kLoraDown:
        LoraDownForward(op, x.row(n), x.width, y.row(n));
        break;
      case OpCode::kLinear:
        if (a.bias) std::copy_n(Weight(1).data(), y.width, y.row(n));
        TimesTransposed({Weight(0).data() + a.row * x.width, x.width, y.width, 1.0, a.bias},
                        x.row(n), y.row(n));
        break;
      case OpCode::kLoraLinear: {
        const View za = In(line, 1);
        if (a.bias) std::copy_n(Weight(2).data(), y.width, y.row(n));
        TimesTransposed({Weight(0).data() + a.row * x.width, x.width, y.width, 1.0, a.bias},
                        x.row(n), y.row(n));
        TimesTransposed({Weight(1).data() + a.row * a.rank, a.rank, y.width, a.scale, true},
                        za.row(n) + a.za_column, y.row(n));
        break;
      }
      case OpCode::kLoraEmbedding:
        std::copy_n(x.row(n), x.width, y.row(n));
        TimesTransposed({Weight(1).data(), a.rank, y.width, a.scale * a.table_scale, true},
                        EmbeddingColumn(op, n).data(), y.row(n));
        break;
      case OpCode::kRope:
        Rotate(x.row(n), y.row(n), positions[static_cast<size_t>(n)].first, a, 1.0);
        break;
      default:
        ElementwiseForward(line, op, n);
        break;
    }
  }
}

// A row `x` of `width` elements through the modules whose columns of za lie beside one another.
void Interpreter::LoraDownForward(const Op& op, const double* x, int64_t width, double* za) const {
  for (size_t i = 0; i < op.parameters.size(); ++i) {
    const std::vector<double>& w = Weight(i);
    const int64_t rank = static_cast<int64_t>(w.size()) / width;
    TimesTransposed({w.data(), width, rank}, x, za);
    za += rank;
  }
}

int64_t Interpreter::RowOfTable(const Op& op, int64_t n, const RowPositions& positions) const {
  if (op.attributes.ids == Ids::kTokens || op.attributes.ids == Ids::kSource)
    return Token(n, op.attributes.ids);
  const int64_t position = positions[static_cast<size_t>(n)].first;
  return op.attributes.ids == Ids::kPositions ? program_.config.first_position + position
                                              : position % 2;
}

// Of A (R, V): that of row n's token.
std::vector<double> Interpreter::EmbeddingColumn(const Op& op, int64_t n) const {
  const std::vector<double>& a = Weight(0);
  const auto rank = static_cast<size_t>(op.attributes.rank), vocabulary = a.size() / rank;
  std::vector<double> column;
  for (size_t r = 0; r < rank; ++r)
    column.push_back(a[r * vocabulary + static_cast<size_t>(Token(n))]);
  return column;
}

// Of row n, for the modules whose columns of za lie beside one another.
void Interpreter::LoraDownBackward(const Instruction& line, const Op& op, int64_t n) {
  const View dx = DIn(line, 0);
  const double* from = DOut(line, 0).row(n);
  const View x = Taken(line);
  const int64_t in = (dx ? dx : x).width;
  bool add = line.accumulate & 1;
  for (size_t i = 0; i < op.parameters.size(); ++i) {
    const std::vector<double>& w = Weight(i);
    const int64_t rank = static_cast<int64_t>(w.size()) / in;
    if (double* dw = Gradient(i)) AddOuter({nullptr, in, rank}, from, x.row(n), dw);
    if (dx) Times({w.data(), in, rank, 1.0, add}, from, dx.row(n));
    add = true;
    from += rank;
  }
}

void Interpreter::LoraEmbeddingBackward(const Instruction& line, const Op& op, int64_t n) {
  const View dy = DOut(line, 0);
  const OpAttributes& a = op.attributes;
  const Factor up = {Weight(1).data(), a.rank, dy.width, a.scale * a.table_scale};
  std::vector<double> column = EmbeddingColumn(op, n);
  AddOuter(up, dy.row(n), column.data(), Gradient(1));
  Times(up, dy.row(n), column.data());
  double* da = Gradient(0);
  const size_t vocabulary = Weight(0).size() / column.size();
  for (size_t r = 0; r < column.size(); ++r)
    da[r * vocabulary + static_cast<size_t>(Token(n))] += column[r];
}

void Interpreter::LinearBackward(const Instruction& line, const Op& op, int64_t n) {
  const View dy = DOut(line, 0), dx = DIn(line, 0), x = Taken(line);
  const int64_t in = (dx ? dx : x).width;
  const int64_t first = op.attributes.row * in;
  if (double* dw = Gradient(0)) AddOuter({nullptr, in, dy.width}, dy.row(n), x.row(n), dw + first);
  if (double* db = op.attributes.bias ? Gradient(1) : nullptr) {
    for (int64_t i = 0; i < dy.width; ++i) db[i] += dy.row(n)[i];
  }
  const bool add = (line.accumulate & 1) != 0;
  if (dx) Times({Weight(0).data() + first, in, dy.width, 1.0, add}, dy.row(n), dx.row(n));
}

void Interpreter::Backward(const Instruction& line, const Op& op) {
  const OpAttributes& a = op.attributes;
  if (op.code == OpCode::kHeadLoss) return HeadLoss(line, op, /*with_gradient=*/true);
  if (op.code == OpCode::kAttention) return AttentionBackward(line, op);
  const auto positions = Positions(batch_->documents(line.operands.d_out[0].rows));
  const View dy = DOut(line, 0);
  const View dx = op.inputs.empty() ? View{} : DIn(line, 0);
  const bool add = line.accumulate & 1;
  const int64_t rows = Count(line.operands.d_out[0]);
  for (int64_t n = 0; n < rows; ++n) {
    switch (op.code) {
      case OpCode::kEmbedding:
        for (int64_t i = 0; i < dy.width; ++i)
          Gradient(0)[RowOfTable(op, n, positions) * dy.width + i] += a.scale * dy.row(n)[i];
        break;
      case OpCode::kPatchEmbedding:
        PatchEmbeddingBackward(line, op, n, positions[static_cast<size_t>(n)].first);
        break;
      case OpCode::kNormalize:
        NormalizeBackward(line, op, n);
        break;
      case OpCode::kAffine:
        for (int64_t i = 0; i < dy.width; ++i) {
          const size_t c = static_cast<size_t>(i) % Weight(0).size();
          if (double* d_gamma = Gradient(0)) d_gamma[c] += dy.row(n)[i] * In(line, 0).row(n)[i];
          if (double* d_beta = a.bias ? Gradient(1) : nullptr) d_beta[c] += dy.row(n)[i];
          if (dx) dx.row(n)[i] = dy.row(n)[i] * (a.offset + Weight(0)[c]);
        }
        break;
      case OpCode::kRmsNorm:
        RmsNormBackward(line, op, n);
        break;
      case OpCode::kLoraDown:
        LoraDownBackward(line, op, n);
        break;
      case OpCode::kLinear:
        LinearBackward(line, op, n);
        break;
      case OpCode::kLoraLinear: {
        const View za = In(line, 1), dza = DIn(line, 1);
        if ((line.accumulate & 2) == 0) std::fill_n(dza.row(n), dza.width, 0.0);
        const int64_t first = a.row * a.rank;
        const Factor up = {Weight(1).data() + first, a.rank, dy.width, a.scale, true};
        AddOuter(up, dy.row(n), za.row(n) + a.za_column, Gradient(1) + first);
        Times(up, dy.row(n), dza.row(n) + a.za_column);
        if (dx)
          Times({Weight(0).data() + a.row * dx.width, dx.width, dy.width, 1.0, add}, dy.row(n),
                dx.row(n));
        break;
      }
      case OpCode::kLoraEmbedding:
        LoraEmbeddingBackward(line, op, n);
        break;
      case OpCode::kRope:
        Rotate(dy.row(n), dx.row(n), positions[static_cast<size_t>(n)].first, a, -1.0);
        break;
      default:
        ElementwiseBackward(line, op, n);
        break;
    }
  }
}

void Interpreter::ChangeRows(const Instruction& line, const Op& op) {
  const bool forward = line.direction == Direction::kForward;
  const Operand& whole = forward ? line.operands.in[0] : line.operands.d_in[0];
  const View all = At(whole), part = forward ? Out(line, 0) : DOut(line, 0);
  double *from = forward ? all.at : part.at, *to = forward ? part.at : all.at;
  if (op.code == OpCode::kMergeRows) {
    if (to != from) std::copy_n(from, Count(whole) * all.width, to);
    return;
  }
  const bool add = (line.accumulate & 1) != 0;
  if (!forward && !add) std::fill_n(all.at, Count(whole) * all.width, 0.0);
  const std::vector<int64_t> trained = batch_->trained();
  for (size_t n = 0; n < trained.size(); ++n) {
    double *selected = part.row(static_cast<int64_t>(n)), *row = all.row(trained[n]);
    for (int64_t i = 0; i < all.width; ++i) {
      if (forward) selected[i] = row[i];
      if (!forward) row[i] = selected[i] + (add ? row[i] : 0.0);
    }
  }
}

// Of the pass's trained rows. Those without a label get a zero gradient, at the first pass.
void Interpreter::HeadLoss(const Instruction& line, const Op& op, bool with_gradient) {
  const View z = In(line, 0), za = In(line, 1), dz = DIn(line, 0), dza = DIn(line, 1);
  const bool adapted = op.inputs.size() > 1;
  const std::vector<double>& w = Weight(0);
  const int64_t vocabulary = HeadRowsOf(program_.config);
  const double scale = op.attributes.table_scale;
  std::vector<double> logits(static_cast<size_t>(vocabulary));
  const Rows rows = line.operands.in[0].rows;
  const auto zero_unlabelled = [&](int64_t n, int label) {
    if (dz && label < 0) std::fill_n(dz.row(n), dz.width, 0.0);
    if (dza && label < 0) std::fill_n(dza.row(n), dza.width, 0.0);
  };
  if (rows == Rows::kTokens && first_row_ == 0) {
    for (size_t n = 0; n < batch_->labels.size(); ++n)
      zero_unlabelled(static_cast<int64_t>(n), batch_->labels[n]);
  }
  const std::vector<int64_t> trained = batch_->trained();
  for (int64_t i = 0; i < rows_of_pass_; ++i) {
    const int64_t place = first_row_ + i;
    const int64_t token = rows == Rows::kMerged1 ? place : trained[static_cast<size_t>(place)];
    const int64_t n = rows == Rows::kTokens ? token : i;
    const int label = batch_->labels[static_cast<size_t>(token)];
    zero_unlabelled(n, label);
    if (label < 0) continue;
    TimesTransposed({w.data(), z.width, vocabulary, scale}, z.row(n), logits.data());
    const Factor up = {adapted ? Weight(1).data() : nullptr, za.width, vocabulary,
                       op.attributes.scale, /*add=*/true};
    if (adapted) TimesTransposed(up, za.row(n), logits.data());
    const size_t bias = adapted ? 2 : 1;
    for (size_t v = 0; op.attributes.bias && v < logits.size(); ++v) logits[v] += Weight(bias)[v];
    std::vector<double> slopes;
    double sum = 0.0;
    for (double& logit : logits) {
      slopes.push_back(CapSlope(op.attributes.softcap, logit));
      logit = Cap(op.attributes.softcap, logit);
      sum += std::exp(logit);
    }
    loss_ += std::log(sum) - logits[static_cast<size_t>(label)];
    if (!with_gradient) continue;
    for (double& logit : logits) logit = std::exp(logit) / sum;
    logits[static_cast<size_t>(label)] -= 1.0;
    for (size_t v = 0; v < logits.size(); ++v) logits[v] *= slopes[v];
    if (double* db = op.attributes.bias ? Gradient(bias) : nullptr) {
      for (size_t v = 0; v < logits.size(); ++v) db[v] += logits[v];
    }
    if (double* dw = Gradient(0))
      AddOuter({nullptr, z.width, vocabulary, scale}, logits.data(), z.row(n), dw);
    if (adapted) {
      AddOuter(up, logits.data(), za.row(n), Gradient(1));
      std::fill_n(dza.row(n), dza.width, 0.0);
      Times(up, logits.data(), dza.row(n));
    }
    if (dz) Times({w.data(), z.width, vocabulary, scale}, logits.data(), dz.row(n));
  }
}

}  // namespace snug::program
