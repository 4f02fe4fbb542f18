#include "proto/snug/refused_names.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"

namespace snug {
namespace {

constexpr const char* kOff[] = {"", "false", "none", "null", "no", "off", "disabled"};

constexpr const char kPlanDecides[] =
    "what is kept for backward and what is recomputed follows from the memory there is: give "
    "memory.budget, or pin it with memory.stash: {\"*\": recompute}";
constexpr const char kQuantisations[] = "true or false; or give quantization: none, int8 or nf4";
constexpr const char kFourBits[] =
    "the 4 bits here are nf4 with its scales quantised as well (double quantisation)";
constexpr const char kOneDevice[] = "a job runs on one device";
constexpr const char kNoPreference[] =
    "tuning by preferences or rewards is not offered; train on the answers that are preferred, "
    "with method: lora or full";
constexpr const char kMetrics[] =
    "metrics go to metrics.jsonl (with report_to: tensorboard also into an event file beside it) "
    "and to Prometheus; snug export-metrics writes them for wandb and mlflow: leave it out";
constexpr const char kNoHub[] = "nothing is uploaded: snug download JOB DIR, then hf upload";
constexpr const char kOtherMethod[] = "the methods are lora and full";

// What is said of each, and whether switching it off asks for nothing.
struct Refusal {
  const char* key;
  const char* why;
  bool may_be_off = true;
};
constexpr Refusal kRefusals[] = {
    {"activation_checkpointing", kPlanDecides},
    {"adapter", "the adapters here are lora; without one it is method: full"},
    {"add_special_tokens", "give added_tokens: tokens that text is split at; decoding shows them"},
    {"add_tokens", "give added_tokens, a list: [\"<a>\", \"<b>\"]"},
    {"bf16", "true or false", false},
    {"bias", "no biases are trained beside an adapter: leave it out (none)"},
    {"bnb_4bit_compute_dtype", "the precisions are fp32 and bf16"},
    {"bnb_4bit_quant_type", kFourBits},
    {"bnb_4bit_use_double_quant", kFourBits, false},
    {"comet_project_name", kMetrics},
    {"dataset_dir", "datasets are paths: snug import reads its dataset_info.json", false},
    {"deepspeed", kOneDevice},
    {"double_quantization", kFourBits, false},
    {"dpo_beta", kNoPreference},
    {"dtype", "the precisions are fp32 and bf16", false},
    {"fan_in_fan_out", "weights lie as (out, in): leave it out (false)"},
    {"fp16", "the precisions are fp32 and bf16: give precision: bf16"},
    {"freeze_trainable_layers", kOtherMethod},
    {"fsdp", kOneDevice},
    {"fsdp_config", kOneDevice},
    {"gradient_checkpointing", kPlanDecides},
    {"gradient_checkpointing_kwargs", kPlanDecides},
    {"hub_model_id", kNoHub},
    {"hub_strategy", kNoHub},
    {"init_lora_weights", "A is drawn and B is zero, as PEFT's true has it: leave it out", false},
    {"load_in_4bit", kQuantisations},
    {"load_in_8bit", kQuantisations},
    {"lora_fan_in_fan_out", "weights lie as (out, in): leave it out (false)"},
    {"lora_target_linear", "give target_modules"},
    {"loraplus_lr_ratio", "A and B learn at one rate"},
    {"mlflow_experiment_name", kMetrics},
    {"mlflow_tracking_uri", kMetrics},
    {"output_dir", "what a job makes is fetched when it is done: snug download JOB DIR", false},
    {"peft_type", "the adapters here are lora"},
    {"peft_use_dora", "DoRA is not offered; lora with use_rslora is"},
    {"per_device_eval_batch_size", "evaluation runs with per_device_train_batch_size", false},
    {"push_to_hub", kNoHub},
    {"quantization_bit", "4 or 8; or give quantization: none, int8 or nf4"},
    {"quantization_method", "weights are quantised in bitsandbytes' formats: bnb"},
    {"quantization_type", kFourBits},
    {"resize_vocab", "the embedding grows with added_tokens, and only then: leave it out", false},
    {"resume_from_checkpoint",
     "a job goes on from its own checkpoints by itself; start from an adapter by "
     "lora.init_adapter"},
    {"rl", kNoPreference},
    {"special_tokens", "the model's own are kept; new tokens are added_tokens"},
    {"stage", kNoPreference, false},
    {"task_type",
     "give task: causal_lm, seq2seq_lm, sequence_classification or token_classification "
     "(CAUSAL_LM, SEQ_2_SEQ_LM, SEQ_CLS, TOKEN_CLS)"},
    {"template",
     "conversations are rendered by the model's own chat template; chat_template "
     "names another, a Jinja file",
     false},
    {"torch_dtype", "the precisions are fp32 and bf16", false},
    {"train_sampling_strategy", "random or group_by_length", false},
    {"use_dora", "DoRA is not offered; lora with use_rslora is"},
    {"use_peft", "give method: lora or full", false},
    {"wandb_entity", kMetrics},
    {"wandb_log_model", kMetrics},
    {"wandb_name", kMetrics},
    {"wandb_project", kMetrics},
    {"wandb_run_id", kMetrics},
    {"wandb_watch", kMetrics},
};

// How another tool loads, caches, shows and computes: what is trained is the same.
constexpr const char* kHow[] = {
    "attn_implementation",
    "auto_resume_from_checkpoints",
    "base_model_config",
    "dataloader_num_workers",
    "dataloader_pin_memory",
    "dataloader_prefetch_factor",
    "dataset_keep_in_memory",
    "dataset_num_proc",
    "dataset_prepared_path",
    "dataset_processes",
    "ddp_find_unused_parameters",
    "ddp_timeout",
    "debug",
    "disable_tqdm",
    "do_eval",
    "do_train",
    "eval_sample_packing",
    "eval_table_size",
    "flash_attention",
    "flash_attn",
    "include_num_input_tokens_seen",
    "liger_fused_linear_cross_entropy",
    "liger_glu_activation",
    "liger_layer_norm",
    "liger_rms_norm",
    "liger_rope",
    "local_rank",
    "log_level",
    "logging_dir",
    "logging_first_step",
    "lora_mlp_kernel",
    "lora_o_kernel",
    "lora_qkv_kernel",
    "low_cpu_mem_usage",
    "model_type",
    "neat_packing",
    "overwrite_cache",
    "overwrite_output_dir",
    "pad_to_multiple_of",
    "pad_to_sequence_len",
    "plot_loss",
    "preprocessing_num_workers",
    "remove_unused_columns",
    "save_only_model",
    "save_safetensors",
    "sdp_attention",
    "shuffle_merged_datasets",
    "skip_memory_metrics",
    "strict",
    "tokenizer_type",
    "tokenizer_use_fast",
    "torch_compile",
    "trust_remote_code",
    "use_cache",
    "use_fast_tokenizer",
    "use_liger_kernel",
    "xformers_attention",
};

struct RefusedValue {
  const char* key;
  const char* value;
  const char* why;
};
constexpr RefusedValue kRefusedValues[] = {
    {"finetuning_type", "freeze", kOtherMethod},
    {"finetuning_type", "oft", kOtherMethod},
    {"method", "dora", "DoRA is not offered; lora with use_rslora is"},
    {"method", "dpo", kNoPreference},
    {"method", "grpo", kNoPreference},
    {"method", "kto", kNoPreference},
    {"method", "orpo", kNoPreference},
    {"method", "ppo", kNoPreference},
    {"method", "rl", kNoPreference},
};

}  // namespace

bool AsksForNothing(absl::string_view name, const std::string* value) {
  const auto is_name = [&](const char* key) { return name == key; };
  if (std::any_of(std::begin(kHow), std::end(kHow), is_name)) return true;
  if (value == nullptr) return false;
  const bool off = std::any_of(std::begin(kOff), std::end(kOff), [&](const char* word) {
    return absl::EqualsIgnoreCase(*value, word);
  });
  return off && std::any_of(std::begin(kRefusals), std::end(kRefusals),
                            [&](const Refusal& row) { return name == row.key && row.may_be_off; });
}

const char* WhyRefused(absl::string_view name) {
  for (const Refusal& row : kRefusals)
    if (name == row.key) return row.why;
  return nullptr;
}

const char* WhyValueRefused(absl::string_view name, const std::string* value) {
  if (value == nullptr) return nullptr;
  for (const RefusedValue& row : kRefusedValues)
    if (name == row.key && absl::EqualsIgnoreCase(*value, row.value)) return row.why;
  return nullptr;
}

}  // namespace snug
