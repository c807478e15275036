// One HTTP/1 answer as it arrives: what its body has so far can be taken at any time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nmc::lab {

// Not thread-safe. Moves. After an error it isn't used again.
class HttpAnswer {
 public:
  static constexpr std::size_t kHeaderBytesMax = 64 << 10;

  HttpAnswer();
  ~HttpAnswer();
  HttpAnswer(HttpAnswer&&) noexcept;
  HttpAnswer& operator=(HttpAnswer&&) noexcept;

  // Bytes of the connection, cut anywhere. kCorrupt: they are no HTTP.
  Result<void> add(std::string_view bytes);
  // The peer has closed. kUnavailable: before the answer was whole.
  Result<void> close();

  bool has_header() const;
  bool is_done() const;
  int status() const;                               // once has_header()
  std::string header(std::string_view name) const;  // ""; once has_header()
  bool keeps_alive() const;                         // the connection can take another request; once is_done()
  bool got_some() const { return got_some_; }       // any byte
  std::string take_body();                          // what came since the last call, without the framing

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
  bool got_some_ = false;
};

}  // namespace nmc::lab
