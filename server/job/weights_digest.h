// By what jobs tell that they share their frozen weights.
#ifndef SERVER_JOB_WEIGHTS_DIGEST_H_
#define SERVER_JOB_WEIGHTS_DIGEST_H_

#include <string>

#include "snug/v1/worker.pb.h"
#include "worker/program/program.h"

namespace snug::server {

// Of the model's files as they were opened for the job's owner (which they are, their sizes and
// times; nothing is read, and what lies in the folder by now does not count), and of the names,
// shapes and number types in which the program only reads their tensors: 16 hexadecimal digits.
// Empty: the program reads none only, or none was opened.
std::string WeightsDigest(const program::Program& program, const v1::OpenedFiles& opened,
                          const std::string& model_dir);

}  // namespace snug::server

#endif  // SERVER_JOB_WEIGHTS_DIGEST_H_
