// Buffers that this package exports to Python by the buffer protocol.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "session.h"
#include "store/client.h"

namespace nmc::python {

namespace nb = nanobind;

// An object's bytes, read-only, where they lie. Pins the object and keeps the client until it goes: the bytes stay
// valid after the object was removed and after close().
class BufferHandle {
 public:
  BufferHandle(std::shared_ptr<Session> session, store::Client::View view);
  ~BufferHandle();
  BufferHandle(const BufferHandle&) = delete;
  BufferHandle& operator=(const BufferHandle&) = delete;
  std::span<const std::byte> bytes() const { return view_->bytes(); }

 private:
  std::shared_ptr<Session> session_;
  std::unique_ptr<store::Client::View> view_;  // goes before its client
};

// A piece of memory that some other object owns, writable, which knows whether anybody looks at it. What a lease of a
// BufferPool hands out: the pool must not lend the memory again before all views of it are gone.
class LeaseView {
 public:
  // `owner` exports the writable buffer that the piece lies in, and lives as long as this.
  LeaseView(nb::handle owner, std::size_t offset, std::size_t size);
  ~LeaseView();
  LeaseView(const LeaseView&) = delete;
  LeaseView& operator=(const LeaseView&) = delete;

  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(owner_.buf) + offset_, size_}; }
  std::size_t exports() const { return exports_; }
  void add_export() { ++exports_; }
  void drop_export();
  // Called, once, when the last view goes.
  void set_on_idle(nb::object callback) { on_idle_ = std::move(callback); }

 private:
  Py_buffer owner_;
  std::size_t offset_ = 0, size_ = 0;
  std::size_t exports_ = 0;
  nb::object on_idle_;
};

void bind_buffers(nb::module_& module);

}  // namespace nmc::python
