#include "interpreter_lock.h"

#include <cxxabi.h>
#include <unistd.h>

namespace nmc::python {
namespace {

// `take` takes the lock, or is unwound out of, which must go no further.
template <typename Take>
auto take_or_stop(Take&& take) {
  try {
    return take();
  } catch (abi::__forced_unwind&) {
    while (true) pause();
  }
}

}  // namespace

Unlocked::~Unlocked() {
  take_or_stop([&] { PyEval_RestoreThread(state_); });
}

Locked::Locked() : state_(take_or_stop([] { return PyGILState_Ensure(); })) {}

}  // namespace nmc::python
