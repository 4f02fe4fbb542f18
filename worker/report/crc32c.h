// CRC-32C (Castagnoli), RFC 3720, appendix B.4: the checksum of event files. Byte by byte: a step
// has some hundred.
#ifndef WORKER_REPORT_CRC32C_H_
#define WORKER_REPORT_CRC32C_H_

#include <cstdint>
#include <string_view>

namespace snug::report {

uint32_t Crc32c(std::string_view bytes);

}  // namespace snug::report

#endif  // WORKER_REPORT_CRC32C_H_
