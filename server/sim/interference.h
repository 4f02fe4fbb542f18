// How much slower jobs are beside one another. Pure.
//
// From Lucid's published table of 1,388 pairs: what two jobs do together, in multiples of what one
// does alone, by the sum of the shares of the GPU that each keeps busy alone: 2.00 below 0.5, 1.97
// from 0.5 to 1, 1.79 from 1 to 1.5, 1.48 from 1.5 to 2, and 1.13 at 2. Between the middles of
// these ranges speeds are interpolated. More than two jobs are as two of the same sum; beyond a sum
// of 2 the device does no more, and is divided.
#ifndef SERVER_SIM_INTERFERENCE_H_
#define SERVER_SIM_INTERFERENCE_H_

namespace snug::server::sim {

// Of a job's own speed, what is left beside others. `utilisation`: of all that run there, itself
// included. `strength` multiplies the time that is lost: 0.5 is half as strong, 2 twice.
double SpeedBeside(int jobs, double utilisation, double strength);

}  // namespace snug::server::sim

#endif  // SERVER_SIM_INTERFERENCE_H_
