// A tape for people: each instruction in a line, with its operands' places in the arena.
#ifndef WORKER_PROGRAM_TAPE_TEXT_H_
#define WORKER_PROGRAM_TAPE_TEXT_H_

#include <string>

#include "worker/program/tape.h"

namespace snug::program {

std::string TapeText(const Tape& tape);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_TAPE_TEXT_H_
