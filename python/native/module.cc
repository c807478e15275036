// The native part of the package: mooncake._store.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>

#include <string_view>

#include "base/log.h"
#include "base/version.h"
#include "buffers.h"
#include "host_memory.h"
#include "objects.h"
#include "session.h"
#include "store_object.h"

NB_MODULE(_store, module) {
  // A program that ends with a store open leaks it, and the master sees it gone: nothing that a user could act on.
  nanobind::set_leak_warnings(false);
  nmc::python::Session::watch_forks();
  module.doc() = "Native part of mooncake.store.";
  module.attr("version") = nmc::build_info().version;
  module.def(
      "log_error", [](std::string_view text) { nmc::log_line(nmc::LogLevel::kError, text); }, nanobind::arg("text"),
      "One line on standard error.");
  nmc::python::bind_objects(module);
  nmc::python::bind_buffers(module);
  nmc::python::bind_store(module);
  nmc::python::bind_host_memory(module);
}
