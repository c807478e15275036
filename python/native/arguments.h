// Python's arguments as plain views that stay valid while a call runs without the interpreter lock.
//
// All constructors need the lock. They throw nanobind's exceptions for what has the wrong type, naming the argument and
// the item; a wrong value (null, too large) is left to the call, which answers with a code.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "store/codes.h"

namespace nmc::python {

namespace nb = nanobind;

// A key: a str's UTF-8, or bytes as they are. Borrowed from the object, which the caller's arguments keep.
struct Key {
  std::string_view text;
};
// False for any other type, and for a str with lone surrogates, which have no UTF-8.
bool load_key(PyObject* object, Key& key);

// Any object that exports a buffer.
class BufferObject : public nb::object {
  NB_OBJECT_DEFAULT(BufferObject, nb::object, "typing_extensions.Buffer", PyObject_CheckBuffer)
};

// Lists as they came. Only that they are sequences is sure: who loads one judges its items.
using KeyList = nb::typed<nb::sequence, nb::str>;
using KeyLists = nb::typed<nb::sequence, KeyList>;
using NumberList = nb::typed<nb::sequence, nb::int_>;
using NumberLists = nb::typed<nb::sequence, NumberList>;
using NumberListLists = nb::typed<nb::sequence, NumberLists>;
using BufferList = nb::typed<nb::sequence, BufferObject>;

// The items of a list, tuple or other sequence. They are held, so another thread may change the list meanwhile.
class Items {
 public:
  Items(nb::handle sequence, const char* argument);
  std::size_t size() const { return static_cast<std::size_t>(PyTuple_GET_SIZE(items_.ptr())); }
  PyObject* operator[](std::size_t index) const { return PyTuple_GET_ITEM(items_.ptr(), index); }

 private:
  nb::object items_;  // a tuple
};

class Keys {
 public:
  explicit Keys(nb::handle sequence, const char* argument = "keys");
  std::size_t size() const { return views_.size(); }
  std::string_view operator[](std::size_t index) const { return views_[index]; }
  PyObject* object(std::size_t index) const { return items_[index]; }
  std::span<const std::string_view> views() const { return views_; }

 private:
  Items items_;
  std::vector<std::string_view> views_;
};

// Whole numbers from 0 to 2^64 - 1: addresses, sizes and offsets.
std::vector<std::uint64_t> load_numbers(nb::handle sequence, const char* argument);

// The `size` bytes at `address`; empty for what can't be memory of a process: null, or an end beyond its addresses.
std::span<std::byte> memory_at(std::uint64_t address, std::uint64_t size);

// The bytes of an object that exports one contiguous buffer, of whatever items. Held until this goes.
class Buffer {
 public:
  explicit Buffer(nb::handle exporter);
  Buffer(const Buffer&) = delete;  // not moved either: a Py_buffer may point into itself
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_;
};

using IntList = nb::typed<nb::list, int>;
IntList to_list(std::span<const store::Outcome> outcomes);

}  // namespace nmc::python

namespace nanobind::detail {

template <>
struct type_caster<nmc::python::Key> {
  NB_TYPE_CASTER(nmc::python::Key, const_name("str"))
  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    return nmc::python::load_key(source.ptr(), value);
  }
};

}  // namespace nanobind::detail
