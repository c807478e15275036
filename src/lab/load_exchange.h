// Internal to the load generator: a request on its connection.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "lab/completion_answer.h"
#include "lab/http_answer.h"
#include "lab/load_request.h"
#include "net/tcp_stream.h"

namespace nmc::lab {

// Belongs to one thread at a time: the sender's, then the reader's (or in between a dialler's, without a connection).
struct LoadExchange {
  LoadExchange(std::size_t index, std::string request_bytes, bool streamed)
      : bytes(std::move(request_bytes)), answer(streamed) {
    record.index = index;
  }

  LoadRecord record;
  std::string bytes;  // of the request
  std::size_t written = 0;
  std::optional<net::TcpStream> stream;
  HttpAnswer http;
  CompletionAnswer answer;
  std::string error_body;  // of a status other than 200

  // As much as the kernel takes, which is all of it unless it is long. False: the connection is broken.
  bool write(Nanos start) {
    while (written < bytes.size()) {
      const iovec piece{bytes.data() + written, bytes.size() - written};
      const net::StreamIo io = stream->write({&piece, 1});
      if (io.bytes == 0) return io.would_block();
      written += io.bytes;
      if (!record.sent) record.sent = real_clock().now() - start;
    }
    return true;
  }

  void end(LoadOutcome outcome, std::string reason, Nanos at) {
    record.outcome = outcome;
    record.reason = std::move(reason);
    record.ended = at;
  }
};

using ExchangePtr = std::unique_ptr<LoadExchange>;

}  // namespace nmc::lab
