// A dataset in words and, row by row, in colours.
#ifndef CLIENT_DATASET_TEXT_H_
#define CLIENT_DATASET_TEXT_H_

#include <ostream>
#include <string>

#include "snug/v1/service.pb.h"

namespace snug::client {

// "1000 rows, 20000 tokens (45.0 % trained), longest row 64, 3 cut off"; empty before it is known.
std::string DatasetFacts(const v1::DatasetSummary& summary);

// "messages, chat template tokenizer_config.json, answers end with <|im_end|>"; empty likewise.
std::string DatasetForm(const v1::DatasetSummary& summary);

// The rows, then facts and warnings. What is trained stands in colour, or, where there is none,
// between « and »; a weight that is neither 0 nor 1 stands in front of it.
void PrintPreview(const v1::PreviewDatasetResponse& reply, bool colour, std::ostream& out);

}  // namespace snug::client

#endif  // CLIENT_DATASET_TEXT_H_
