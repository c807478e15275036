#include "store/store.h"

#include "store/embedded_store.h"
#include "store/node_store.h"

namespace nmc::store {

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  if (store_ != nullptr) store_->give_back(parts_);
  store_ = std::exchange(other.store_, nullptr);
  parts_ = std::exchange(other.parts_, {});
  return *this;
}

Reservation::~Reservation() {
  if (store_ != nullptr) store_->give_back(parts_);
}

Result<std::unique_ptr<Store>> Store::create(StoreOptions options) {
  if (options.server.starts_with("unix:")) return NodeStore::join(std::move(options));
  return EmbeddedStore::create(std::move(options));
}

}  // namespace nmc::store
