#include "arguments.h"

namespace nmc::python {
namespace {

constexpr std::uint64_t kAddressEnd = std::uint64_t{1} << 56;  // user space of x86-64 with five levels of pages

[[noreturn]] void raise_type_error(const char* format, const char* argument, PyObject* object) {
  PyErr_Format(PyExc_TypeError, format, argument, Py_TYPE(object)->tp_name);
  nb::raise_python_error();
}

nb::object to_tuple(nb::handle sequence, const char* argument) {
  PyObject* object = sequence.ptr();
  // A str is a sequence too, of its characters: as a list of keys it is a mistake.
  if (!PySequence_Check(object) || PyUnicode_Check(object) || PyBytes_Check(object)) {
    raise_type_error("%s: expected a list, got %s", argument, object);
  }
  PyObject* tuple = PySequence_Tuple(object);
  if (tuple == nullptr) nb::raise_python_error();
  return nb::steal(tuple);
}

std::uint64_t load_number(PyObject* object, const char* argument, std::size_t position) {
  std::uint64_t number = static_cast<std::uint64_t>(-1);
  if (PyLong_Check(object)) {
    number = PyLong_AsUnsignedLongLong(object);
  } else if (PyObject* index = PyNumber_Index(object); index != nullptr) {  // NumPy's integers, for one
    number = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
  }
  if (number == static_cast<std::uint64_t>(-1) && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s[%zu]: expected a whole number from 0 to 2**64 - 1, got %R", argument, position,
                 object);
    nb::raise_python_error();
  }
  return number;
}

}  // namespace

bool load_key(PyObject* object, Key& key) {
  if (PyUnicode_Check(object)) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text == nullptr) {
      PyErr_Clear();
      return false;
    }
    key.text = {text, static_cast<std::size_t>(size)};
    return true;
  }
  if (PyBytes_Check(object)) {
    key.text = {PyBytes_AS_STRING(object), static_cast<std::size_t>(PyBytes_GET_SIZE(object))};
    return true;
  }
  return false;
}

Items::Items(nb::handle sequence, const char* argument) : items_(to_tuple(sequence, argument)) {}

Keys::Keys(nb::handle sequence, const char* argument) : items_(sequence, argument) {
  views_.reserve(items_.size());
  for (std::size_t i = 0; i < items_.size(); ++i) {
    Key key;
    if (!load_key(items_[i], key)) {
      PyErr_Format(PyExc_TypeError, "%s[%zu]: expected a str that has UTF-8, got %s", argument, i,
                   Py_TYPE(items_[i])->tp_name);
      nb::raise_python_error();
    }
    views_.push_back(key.text);
  }
}

std::vector<std::uint64_t> load_numbers(nb::handle sequence, const char* argument) {
  std::vector<std::uint64_t> numbers;
  if (PyList_CheckExact(sequence.ptr())) {
    numbers.reserve(static_cast<std::size_t>(PyList_GET_SIZE(sequence.ptr())));
    // An item may run code of its own to become an int, and that may change the list.
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(sequence.ptr()); ++i) {
      const nb::object item = nb::borrow(PyList_GET_ITEM(sequence.ptr(), i));
      numbers.push_back(load_number(item.ptr(), argument, i));
    }
  } else {
    const Items items(sequence, argument);
    for (std::size_t i = 0; i < items.size(); ++i) numbers.push_back(load_number(items[i], argument, i));
  }
  return numbers;
}

std::span<std::byte> memory_at(std::uint64_t address, std::uint64_t size) {
  if (address == 0 || address >= kAddressEnd || size > kAddressEnd - address) return {};
  return {reinterpret_cast<std::byte*>(address), static_cast<std::size_t>(size)};
}

Buffer::Buffer(nb::handle exporter) : view_() {
  if (PyObject_GetBuffer(exporter.ptr(), &view_, PyBUF_ANY_CONTIGUOUS) != 0) nb::raise_python_error();
}

Buffer::~Buffer() { PyBuffer_Release(&view_); }

IntList to_list(std::span<const store::Outcome> outcomes) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(outcomes.size()));
  if (list == nullptr) nb::raise_python_error();
  IntList result = nb::steal<IntList>(list);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    PyObject* number = PyLong_FromLongLong(outcomes[i]);
    if (number == nullptr) nb::raise_python_error();
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), number);
  }
  return result;
}

}  // namespace nmc::python
