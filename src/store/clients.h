// The clients whose pins the evictor respects: one pin table each. The master's part of the pin protocol reads them
// all.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "store/pin_table.h"

namespace nmc::store {

// Not thread-safe (the master's lock guards it); the tables' words are.
class Clients {
 public:
  enum class Kind {
    kUser,    // its pins hold until it drops them
    kLender,  // gives its pins up when asked (the disk tier's queue); they don't count as use
  };

  Clients(SharedFiles& files, std::uint32_t entry_count, std::uint64_t boot_id)
      : files_(files), entry_count_(entry_count), boot_id_(boot_id) {}

  static constexpr const char* kFilePrefix = "pins.";
  static std::string file_name(std::uint32_t client) { return kFilePrefix + std::to_string(client); }

  // Memory for the words of entries below `entries`, in all tables, those to come as well.
  Result<void> reserve(std::uint32_t entries);
  // The table stays where it is until drop().
  Result<const PinTable*> add(Kind kind);
  // A client of the last master, who still lives.
  const PinTable* adopt(PinTable table);
  // Its pins no longer hold anything. Nobody uses the table afterwards; its file is gone.
  void drop(std::uint32_t client);
  const PinTable* find(std::uint32_t client) const;

  // The pin words of one entry, for PinProtocol::may_free.
  class WordsOf {
   public:
    struct Iterator {
      const SharedWord* const* base;
      std::uint32_t entry;
      const SharedWord* operator*() const { return *base + std::size_t{entry} * PinTable::kWordsAnEntry; }
      Iterator& operator++() {
        ++base;
        return *this;
      }
      bool operator!=(const Iterator& other) const { return base != other.base; }
    };
    WordsOf(const std::vector<const SharedWord*>& bases, std::uint32_t entry) : bases_(bases), entry_(entry) {}
    Iterator begin() const { return {bases_.data(), entry_}; }
    Iterator end() const { return {bases_.data() + bases_.size(), entry_}; }

   private:
    const std::vector<const SharedWord*>& bases_;
    std::uint32_t entry_;
  };
  WordsOf words_of(std::uint32_t entry) const { return {bases_, entry}; }

  std::uint64_t user_pins(std::uint32_t entry) const;
  std::uint64_t lender_pins(std::uint32_t entry) const;
  // The newest stamp at which a user touched this generation of the entry; 0 when none did.
  std::uint64_t newest_touch(std::uint32_t entry, std::uint64_t generation, std::uint64_t now) const;

  struct Client {
    PinTable table;
    Kind kind;
    std::uint64_t limbo_bytes = 0;  // dying objects that it has pinned, as of the last sweep
  };
  std::vector<std::unique_ptr<Client>>& all() { return clients_; }
  const std::vector<std::unique_ptr<Client>>& all() const { return clients_; }
  // Lookups of clients that are gone.
  std::uint64_t past_hits() const { return past_hits_; }
  std::uint64_t past_misses() const { return past_misses_; }

 private:
  std::uint64_t pins(std::uint32_t entry, Kind kind) const;

  const PinTable* keep(PinTable table, Kind kind);

  SharedFiles& files_;
  std::uint32_t entry_count_;
  std::uint64_t boot_id_;
  std::uint32_t entries_ready_ = 0;
  std::uint32_t next_client_ = 1;
  std::uint64_t past_hits_ = 0, past_misses_ = 0;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<const SharedWord*> bases_;  // the first word of each table
};

}  // namespace nmc::store
