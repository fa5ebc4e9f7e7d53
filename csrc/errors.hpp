// What the native side throws. The binding turns both into the exceptions of ralm_engine.errors.
#pragma once

#include <stdexcept>
#include <string>

namespace ralm {

// The caller's text, argument or file is at fault.
class InputFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The disk or the system failed while work was under way.
class RunFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ralm
