// What `snug plan` says, as a picture: its table, and below it the chosen plan's live bytes.
#ifndef CLIENT_PLAN_PICTURE_H_
#define CLIENT_PLAN_PICTURE_H_

#include <string>

#include "client/memory_chart.h"
#include "snug/v1/service.pb.h"

namespace snug::client {

// A whole SVG document. `chart` is that of the reply.
std::string PlanSvg(const v1::PlanJobResponse& reply, const MemoryChart& chart);

}  // namespace snug::client

#endif  // CLIENT_PLAN_PICTURE_H_
