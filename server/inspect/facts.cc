#include "server/inspect/facts.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/cord.h"
#include "proto/snug/status_macros.h"

namespace snug::server {
namespace {

using program::ModelConfig;
using program::RopeScaling;

constexpr int kMaxKind = static_cast<int>(RopeScaling::Kind::kYarn);
constexpr int kMaxTask = static_cast<int>(program::Task::kMaskedLm);
constexpr int kMaxQuantization = static_cast<int>(program::Quantization::kInt8);
constexpr int kMaxProblem = static_cast<int>(program::Problem::kRegression);
constexpr int kMaxActivation = static_cast<int>(program::Activation::kTanh);

void SetRope(const RopeScaling& rope, v1::RopeFacts& facts) {
  facts.set_kind(static_cast<int>(rope.kind));
  facts.set_factor(rope.factor);
  facts.set_low_freq_factor(rope.low_freq_factor);
  facts.set_high_freq_factor(rope.high_freq_factor);
  facts.set_original_max_positions(rope.original_max_positions);
  facts.set_beta_fast(rope.beta_fast);
  facts.set_beta_slow(rope.beta_slow);
  facts.set_truncate(rope.truncate);
  facts.set_attention_factor(rope.attention_factor);
}

RopeScaling RopeOf(const v1::RopeFacts& facts) {
  return {.kind = static_cast<RopeScaling::Kind>(facts.kind()),
          .factor = facts.factor(),
          .low_freq_factor = facts.low_freq_factor(),
          .high_freq_factor = facts.high_freq_factor(),
          .original_max_positions = facts.original_max_positions(),
          .beta_fast = facts.beta_fast(),
          .beta_slow = facts.beta_slow(),
          .truncate = facts.truncate(),
          .attention_factor = facts.attention_factor()};
}

void SetSizes(const ModelConfig& config, v1::ModelFacts& facts) {
  facts.set_model_type(config.model_type);
  facts.set_layers(config.layers);
  facts.set_width(config.width);
  facts.set_heads(config.heads);
  facts.set_kv_heads(config.kv_heads);
  facts.set_head_width(config.head_width);
  facts.set_mlp_width(config.mlp_width);
  facts.set_vocabulary(config.vocabulary);
  facts.set_max_positions(config.max_positions);
  facts.set_file_vocabulary(config.file_vocabulary);
  facts.set_first_added(config.first_added);
  facts.set_window(config.window);
  for (const bool slides : config.sliding) facts.add_sliding(slides);
}

void SetNumbers(const ModelConfig& config, v1::ModelFacts& facts) {
  facts.set_norm_epsilon(config.norm_epsilon);
  facts.set_rope_theta(config.rope_theta);
  facts.set_embedding_scale(config.embedding_scale);
  facts.set_rotary_share(config.rotary_share);
  facts.set_local_rope_theta(config.local_rope_theta);
  facts.set_query_scalar(config.query_scalar);
  facts.set_attention_softcap(config.attention_softcap);
  facts.set_attention_dropout(config.attention_dropout);
  facts.set_logit_softcap(config.logit_softcap);
}

void SetKinds(const ModelConfig& config, v1::ModelFacts& facts) {
  facts.set_tied_embeddings(config.tied_embeddings);
  facts.set_activation(static_cast<int>(config.activation));
  facts.set_qkv_bias(config.qkv_bias);
  facts.set_output_bias(config.output_bias);
  facts.set_mlp_bias(config.mlp_bias);
  facts.set_head_norms(config.head_norms);
  facts.set_post_norms(config.post_norms);
  facts.set_unit_offset_norms(config.unit_offset_norms);
  facts.set_fused_projections(config.fused_projections);
  facts.set_reversible(config.reversible);
  facts.set_quantization(static_cast<int>(config.quantization));
  facts.mutable_in_floats()->Assign(config.in_floats.begin(), config.in_floats.end());
  facts.mutable_outer_codes()->Assign(config.outer_codes.begin(), config.outer_codes.end());
}

void SetEncoder(const ModelConfig& config, v1::ModelFacts& facts) {
  facts.set_encoder(config.encoder);
  facts.set_pools(config.pools);
  facts.set_token_types(config.token_types);
  facts.set_first_position(config.first_position);
  facts.set_hidden_dropout(config.hidden_dropout);
  facts.set_classifier_dropout(config.classifier_dropout);
}

void SetEncoderDecoder(const ModelConfig& config, v1::ModelFacts& facts) {
  facts.set_decoder_layers(config.decoder_layers);
  facts.set_distance_buckets(config.distances.buckets);
  facts.set_farthest_distance(config.distances.farthest);
  facts.set_plain_mlp(!config.gated_mlp);
  facts.set_head_scale(config.head_scale);
  facts.set_start_token(config.start_token);
}

void SetImages(const ModelConfig& config, v1::ModelFacts& facts) {
  facts.set_image_size(config.image_size);
  facts.set_patch_size(config.patch_size);
  facts.set_image_channels(config.image_channels);
  facts.set_distilled(config.distilled);
  for (const auto& [layers, heads] : config.stages) {
    facts.add_stage_layers(layers);
    facts.add_stage_heads(heads);
  }
  facts.set_window_side(config.window_side);
  facts.set_drop_path(config.drop_path);
}

void SetTask(const ModelConfig& config, v1::ModelFacts& facts) {
  facts.set_task(static_cast<int>(config.task));
  facts.set_labels(config.labels);
  facts.set_problem(static_cast<int>(config.problem));
  facts.set_new_head(config.new_head);
  facts.set_head_spread(config.head_spread);
  facts.set_pad_token(config.pad_token);
}

bool KindsAreKnown(const v1::ModelFacts& facts) {
  const std::pair<int, int> kinds[] = {{facts.task(), kMaxTask},
                                       {facts.problem(), kMaxProblem},
                                       {facts.activation(), kMaxActivation},
                                       {facts.rope().kind(), kMaxKind},
                                       {facts.quantization(), kMaxQuantization}};
  return absl::c_all_of(
      kinds, [](const auto& kind) { return kind.first >= 0 && kind.first <= kind.second; });
}

bool AllFinite(const v1::ModelFacts& facts) {
  const v1::RopeFacts& rope = facts.rope();
  for (const double number :
       {facts.norm_epsilon(),      facts.rope_theta(),        facts.embedding_scale(),
        facts.rotary_share(),      facts.local_rope_theta(),  facts.query_scalar(),
        facts.attention_softcap(), facts.attention_dropout(), facts.logit_softcap(),
        facts.head_spread(),       facts.hidden_dropout(),    facts.classifier_dropout(),
        facts.head_scale(),        facts.drop_path(),         rope.factor(),
        rope.low_freq_factor(),    rope.high_freq_factor(),   rope.beta_fast(),
        rope.beta_slow(),          rope.attention_factor()})
    if (!std::isfinite(number)) return false;
  return facts.rotary_share() > 0.0 && facts.rotary_share() <= 1.0;
}

}  // namespace

v1::ModelFacts FactsOf(const ModelConfig& config) {
  v1::ModelFacts facts;
  SetSizes(config, facts);
  SetNumbers(config, facts);
  SetKinds(config, facts);
  SetEncoder(config, facts);
  SetEncoderDecoder(config, facts);
  SetImages(config, facts);
  SetTask(config, facts);
  SetRope(config.rope_scaling, *facts.mutable_rope());
  return facts;
}

absl::StatusOr<ModelConfig> ConfigOf(const v1::ModelFacts& facts) {
  if (!KindsAreKnown(facts) || !AllFinite(facts) ||
      facts.stage_layers_size() != facts.stage_heads_size())
    return absl::InvalidArgumentError("a model's facts are outside their limits");
  ModelConfig config{.model_type = facts.model_type(),
                     .layers = facts.layers(),
                     .width = facts.width(),
                     .heads = facts.heads(),
                     .kv_heads = facts.kv_heads(),
                     .head_width = facts.head_width(),
                     .mlp_width = facts.mlp_width(),
                     .vocabulary = facts.vocabulary(),
                     .max_positions = facts.max_positions(),
                     .norm_epsilon = facts.norm_epsilon(),
                     .rope_theta = facts.rope_theta(),
                     .rope_scaling = RopeOf(facts.rope()),
                     .tied_embeddings = facts.tied_embeddings(),
                     .task = static_cast<program::Task>(facts.task()),
                     .labels = facts.labels(),
                     .problem = static_cast<program::Problem>(facts.problem()),
                     .new_head = facts.new_head(),
                     .head_spread = facts.head_spread(),
                     .pad_token = facts.pad_token(),
                     .file_vocabulary = facts.file_vocabulary(),
                     .first_added = facts.first_added(),
                     .quantization = static_cast<program::Quantization>(facts.quantization()),
                     .in_floats = {facts.in_floats().begin(), facts.in_floats().end()},
                     .outer_codes = {facts.outer_codes().begin(), facts.outer_codes().end()},
                     .activation = static_cast<program::Activation>(facts.activation()),
                     .qkv_bias = facts.qkv_bias(),
                     .output_bias = facts.output_bias(),
                     .mlp_bias = facts.mlp_bias(),
                     .head_norms = facts.head_norms(),
                     .post_norms = facts.post_norms(),
                     .unit_offset_norms = facts.unit_offset_norms(),
                     .fused_projections = facts.fused_projections(),
                     .embedding_scale = facts.embedding_scale(),
                     .rotary_share = facts.rotary_share(),
                     .local_rope_theta = facts.local_rope_theta(),
                     .query_scalar = facts.query_scalar(),
                     .attention_softcap = facts.attention_softcap(),
                     .attention_dropout = facts.attention_dropout(),
                     .logit_softcap = facts.logit_softcap(),
                     .window = facts.window(),
                     .sliding = {facts.sliding().begin(), facts.sliding().end()},
                     .reversible = facts.reversible(),
                     .encoder = facts.encoder(),
                     .pools = facts.pools(),
                     .token_types = facts.token_types(),
                     .first_position = facts.first_position(),
                     .hidden_dropout = facts.hidden_dropout(),
                     .classifier_dropout = facts.classifier_dropout(),
                     .decoder_layers = facts.decoder_layers(),
                     .gated_mlp = !facts.plain_mlp(),
                     .head_scale = facts.head_scale(),
                     .start_token = facts.start_token(),
                     .image_size = facts.image_size(),
                     .patch_size = facts.patch_size(),
                     .image_channels = facts.image_channels(),
                     .distilled = facts.distilled(),
                     .window_side = facts.window_side(),
                     .drop_path = facts.drop_path()};
  for (int i = 0; i < facts.stage_layers_size(); ++i)
    config.stages.push_back({.layers = facts.stage_layers(i), .heads = facts.stage_heads(i)});
  config.distances = {.buckets = facts.distance_buckets(), .farthest = facts.farthest_distance()};
  RETURN_IF_ERROR(program::CheckModelConfig(config));
  return config;
}

v1::InspectError ErrorOf(const absl::Status& status) {
  v1::InspectError error;
  error.set_code(static_cast<int>(status.code()));
  error.set_message(std::string(status.message()));
  status.ForEachPayload([&](absl::string_view type_url, const absl::Cord& payload) {
    v1::InspectError::Detail& detail = *error.add_details();
    detail.set_type_url(std::string(type_url));
    detail.set_value(std::string(payload));
  });
  return error;
}

absl::Status StatusOf(const v1::InspectError& error) {
  const auto code = static_cast<absl::StatusCode>(error.code());
  const bool wrong = code > absl::StatusCode::kOk && code <= absl::StatusCode::kUnauthenticated;
  absl::Status status(wrong ? code : absl::StatusCode::kInternal, error.message());
  for (const v1::InspectError::Detail& detail : error.details())
    status.SetPayload(detail.type_url(), absl::Cord(detail.value()));
  return status;
}

}  // namespace snug::server
