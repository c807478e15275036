// Lists of ids that any id can leave from in O(1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace nmc::store {

// Neighbours by id, for lists of which each id is in one at most. Not thread-safe.
struct IdLinks {
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  struct Link {
    std::uint32_t before = kNone, after = kNone;
  };
  std::vector<Link> links;
};

// Not thread-safe.
class IdList {
 public:
  // `links` outlives this.
  explicit IdList(IdLinks& links) : links_(&links.links) {}

  std::size_t size() const { return size_; }
  std::uint32_t front() const { return front_; }  // kNone when empty

  void push_back(std::uint32_t id) {
    if (id >= links_->size()) links_->resize(std::size_t{id} + 1);
    (*links_)[id] = {back_, IdLinks::kNone};
    (back_ == IdLinks::kNone ? front_ : (*links_)[back_].after) = id;
    back_ = id;
    ++size_;
  }

  // `id` is in this list.
  void erase(std::uint32_t id) {
    const IdLinks::Link link = (*links_)[id];
    (link.before == IdLinks::kNone ? front_ : (*links_)[link.before].after) = link.after;
    (link.after == IdLinks::kNone ? back_ : (*links_)[link.after].before) = link.before;
    --size_;
  }

 private:
  std::vector<IdLinks::Link>* links_;
  std::uint32_t front_ = IdLinks::kNone, back_ = IdLinks::kNone;
  std::size_t size_ = 0;
};

}  // namespace nmc::store
