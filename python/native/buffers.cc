#include "buffers.h"

#include <stdexcept>
#include <utility>

namespace nmc::python {
namespace {

std::uint64_t address_of(std::span<const std::byte> bytes) { return reinterpret_cast<std::uint64_t>(bytes.data()); }

int export_handle(PyObject* self, Py_buffer* view, int flags) {
  const std::span<const std::byte> bytes = nb::inst_ptr<BufferHandle>(self)->bytes();
  return PyBuffer_FillInfo(view, self, const_cast<std::byte*>(bytes.data()), static_cast<Py_ssize_t>(bytes.size()),
                           /*readonly=*/1, flags);
}

int export_lease(PyObject* self, Py_buffer* view, int flags) {
  LeaseView& lease = *nb::inst_ptr<LeaseView>(self);
  const int failed = PyBuffer_FillInfo(view, self, lease.bytes().data(), static_cast<Py_ssize_t>(lease.bytes().size()),
                                       /*readonly=*/0, flags);
  if (failed == 0) lease.add_export();
  return failed;
}

void release_lease(PyObject* self, Py_buffer*) { nb::inst_ptr<LeaseView>(self)->drop_export(); }

PyType_Slot handle_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(export_handle)}, {0, nullptr}};
PyType_Slot lease_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(export_lease)},
                             {Py_bf_releasebuffer, reinterpret_cast<void*>(release_lease)},
                             {0, nullptr}};

}  // namespace

BufferHandle::BufferHandle(std::shared_ptr<Session> session, store::Client::View view)
    : session_(std::move(session)), view_(std::make_unique<store::Client::View>(std::move(view))) {}

BufferHandle::~BufferHandle() {
  // A forked child has a copy of this handle; the pin is the parent's.
  if (!session_->usable()) static_cast<void>(view_.release());
}

LeaseView::LeaseView(nb::handle owner, std::size_t offset, std::size_t size) : owner_() {
  if (PyObject_GetBuffer(owner.ptr(), &owner_, PyBUF_WRITABLE) != 0) nb::raise_python_error();
  const auto room = static_cast<std::size_t>(owner_.len);
  if (offset > room || size > room - offset) {
    PyBuffer_Release(&owner_);
    throw nb::value_error("the piece lies beyond its owner's end");
  }
  offset_ = offset;
  size_ = size;
}

LeaseView::~LeaseView() { PyBuffer_Release(&owner_); }

void LeaseView::drop_export() {
  if (--exports_ != 0 || !on_idle_.is_valid()) return;
  const nb::object callback = std::exchange(on_idle_, nb::object());
  // May run wherever the last view is dropped, so an exception has nowhere to go, and one under way stays.
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyObject* result = PyObject_CallNoArgs(callback.ptr());
  if (result == nullptr) PyErr_WriteUnraisable(callback.ptr());
  Py_XDECREF(result);
  PyErr_Restore(type, value, trace);
}

void bind_buffers(nb::module_& module) {
  nb::class_<BufferHandle>(
      module, "BufferHandle", nb::type_slots(handle_slots),
      "The bytes of an object, where they lie: memoryview(handle) copies nothing and is read-only.\n\n"
      "They stay valid as long as the handle or a view of it lives, whatever becomes of the object "
      "or the store.")
      .def(
          "ptr", [](const BufferHandle& self) { return address_of(self.bytes()); }, "Address of the first byte.")
      .def(
          "size", [](const BufferHandle& self) { return self.bytes().size(); }, "Number of bytes.")
      .def("__len__", [](const BufferHandle& self) { return self.bytes().size(); });

  nb::class_<LeaseView>(module, "BufferLeaseView", nb::type_slots(lease_slots), nb::is_weak_referenceable(),
                        "The memory of a BufferPool's lease as a writable buffer.")
      .def(nb::init<nb::handle, std::size_t, std::size_t>(), nb::arg("owner"), nb::arg("offset"), nb::arg("size"))
      .def_prop_ro(
          "ptr", [](const LeaseView& self) { return address_of(self.bytes()); }, "Address of the first byte.")
      .def_prop_ro(
          "size", [](const LeaseView& self) { return self.bytes().size(); }, "Number of bytes.")
      .def_prop_ro(
          "buffer",
          [](nb::handle self) {
            PyObject* view = PyMemoryView_FromObject(self.ptr());
            if (view == nullptr) nb::raise_python_error();
            return nb::steal(view);
          },
          nb::sig("def buffer(self) -> memoryview"), "A writable view of it.")
      .def_prop_ro("exports", &LeaseView::exports, "How many views of it are alive, with what they share counted once.")
      .def("on_idle", &LeaseView::set_on_idle, nb::arg("callback"), "Calls `callback()` once the last view is gone.");
}

}  // namespace nmc::python
