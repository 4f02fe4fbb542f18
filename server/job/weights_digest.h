// By what jobs tell that they share their frozen weights.
#ifndef SERVER_JOB_WEIGHTS_DIGEST_H_
#define SERVER_JOB_WEIGHTS_DIGEST_H_

#include <string>

#include "worker/program/program.h"

namespace snug::server {

// Of the files that the model's folder has now (which they are, their sizes and times; nothing is
// read) and of the names, shapes and number types in which the program only reads their tensors: 16
// hexadecimal digits. Empty: the program reads none only, or the folder cannot be looked at.
std::string WeightsDigest(const program::Program& program, const std::string& model_dir);

}  // namespace snug::server

#endif  // SERVER_JOB_WEIGHTS_DIGEST_H_
