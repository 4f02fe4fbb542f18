// LoraSpec by itself: ranges and sizes. Which modules a model has is checked with its program.
#ifndef SERVER_JOB_CHECK_LORA_H_
#define SERVER_JOB_CHECK_LORA_H_

#include "server/job/spec_checker.h"
#include "snug/v1/job.pb.h"
#include "worker/program/lora_config.h"

namespace snug::server {

void CheckLora(const v1::LoraSpec& lora, Checker& check);

// As the worker reads it.
program::LoraConfig LoraConfigOf(const v1::LoraSpec& lora);

}  // namespace snug::server

#endif  // SERVER_JOB_CHECK_LORA_H_
