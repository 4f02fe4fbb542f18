#include "client/answers.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/errors.h"

namespace snug::client {
namespace {

// False: it speaks of a prompt that was not asked.
bool TakeIn(const v1::SampleChunk& chunk, Answers& all,
            const std::function<void(int, const std::string&)>& told) {
  const auto known = [&](int prompt) {
    return prompt >= 0 && static_cast<size_t>(prompt) < all.answers.size();
  };
  if (chunk.has_begun()) {
    all.device = chunk.begun().device();
    all.reserved_bytes = chunk.begun().reserved_bytes();
  }
  if (chunk.has_piece()) {
    const v1::SampleChunk::Piece& piece = chunk.piece();
    if (!known(piece.prompt())) return false;
    Answer& answer = all.answers[static_cast<size_t>(piece.prompt())];
    answer.text += piece.text();
    answer.tokens.insert(answer.tokens.end(), piece.tokens().begin(), piece.tokens().end());
    told(piece.prompt(), piece.text());
  }
  if (chunk.has_prompt_ended()) {
    if (!known(chunk.prompt_ended().prompt())) return false;
    all.answers[static_cast<size_t>(chunk.prompt_ended().prompt())].ended =
        chunk.prompt_ended().reason();
  }
  if (chunk.has_ended()) all.measured_peak_bytes = chunk.ended().measured_peak_bytes();
  return true;
}

}  // namespace

v1::SampleRequest SampleRequestOf(const CommandLine& line) {
  v1::SampleRequest request;
  request.set_id(line.job);
  request.set_base(line.base);
  if (line.checkpoint) request.set_checkpoint_step(*line.checkpoint);
  v1::SampleSettings& settings = *request.mutable_settings();
  settings.set_max_new_tokens(line.max_new_tokens);
  settings.set_temperature(line.temperature);
  settings.set_top_p(line.top_p);
  settings.set_seed(line.seed);
  return request;
}

absl::StatusOr<Answers> Ask(Connection& connection, const v1::SampleRequest& request,
                            const std::function<void(int, const std::string&)>& told) {
  Answers all;
  all.answers.resize(static_cast<size_t>(request.prompts_size()));
  grpc::ClientContext context;
  const auto reader = connection.stub().Sample(&context, request);
  v1::SampleChunk chunk;
  bool right = true;
  while (right && reader->Read(&chunk)) right = TakeIn(chunk, all, told);
  if (!right) context.TryCancel();
  const grpc::Status status = reader->Finish();
  if (!right) return absl::InternalError("the daemon answered a prompt that was not asked");
  if (!status.ok()) return ToStatus(status);
  return all;
}

}  // namespace snug::client
