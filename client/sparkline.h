// The course of a number in one line of text.
#ifndef CLIENT_SPARKLINE_H_
#define CLIENT_SPARKLINE_H_

#include <string>
#include <vector>

namespace snug::client {

// One block of eight heights per column, from the lowest to the highest of the values; of more
// values than columns each block is the mean of a stretch of them. UTF-8, a cell for each block.
// Empty: there are no values.
std::string Sparkline(const std::vector<double>& values, int columns);

}  // namespace snug::client

#endif  // CLIENT_SPARKLINE_H_
