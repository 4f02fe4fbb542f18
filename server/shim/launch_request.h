// What snugd asks snug-launch for (launch_wire.h), taken apart.
#ifndef SERVER_SHIM_LAUNCH_REQUEST_H_
#define SERVER_SHIM_LAUNCH_REQUEST_H_

#include <string>
#include <vector>

namespace snug::shim {

// As execve takes them: each list ends with a null pointer.
struct LaunchRequest {
  std::vector<char*> arguments;
  std::vector<char*> environment;
};

// The request points into `text`. It returns false when the text does not end with a zero byte, or
// when its number of arguments is none, or more than it has.
bool SplitLaunchRequest(std::string& text, LaunchRequest& request);

}  // namespace snug::shim

#endif  // SERVER_SHIM_LAUNCH_REQUEST_H_
