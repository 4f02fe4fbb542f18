// The model of the planner's tests.
#ifndef TESTS_SERVER_PLAN_TOY_CONFIG_H_
#define TESTS_SERVER_PLAN_TOY_CONFIG_H_

#include "worker/program/model_config.h"

namespace snug::server {

inline program::ModelConfig ToyConfig() {
  program::ModelConfig config;
  config.model_type = "llama";
  config.layers = 3;
  config.width = 64;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_width = 16;
  config.mlp_width = 128;
  config.vocabulary = 100;
  config.max_positions = 128;
  return config;
}

inline program::ModelConfig ToyT5() {
  program::ModelConfig config = ToyConfig();
  config.model_type = "t5";
  config.task = program::Task::kSeq2SeqLm;
  config.kv_heads = config.heads;
  config.decoder_layers = 1;
  config.distances = {.buckets = 8, .farthest = 20};
  config.query_scalar = 1.0;
  return config;
}

}  // namespace snug::server

#endif  // TESTS_SERVER_PLAN_TOY_CONFIG_H_
