// Python's interpreter lock, given up and taken again by scope.
//
// Why not nanobind's: a daemon thread that asks for the lock while the interpreter goes down is ended by CPython before
// 3.14, which unwinds its stack through destructors that may not be left that way, and the process aborts. Threads of
// ours stop there instead, until the process is gone; they hold nothing that others wait for.
#pragma once

#include <Python.h>

namespace nmc::python {

// The thread has the lock before and after, and not in between.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

// Within an Unlocked: has the lock in between.
class Locked {
 public:
  Locked();
  ~Locked() { PyGILState_Release(state_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace nmc::python
