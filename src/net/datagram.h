// Internal to net: one frame as one datagram of a Unix socket, with the descriptors that travel beside it.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/syscall.h"
#include "net/frame.h"

namespace nmc::net {

// For sendmsg(). Refers to what it was made from; stays where it is.
class DatagramToSend {
 public:
  // Within check_datagram_size() and kDatagramFdsMax.
  DatagramToSend(const FrameHeader& header, ByteSpan body, std::span<const ByteSpan> payload, std::span<const int> fds);
  DatagramToSend(const DatagramToSend&) = delete;
  DatagramToSend& operator=(const DatagramToSend&) = delete;

  const msghdr& message() const { return message_; }

 private:
  static constexpr std::size_t kPiecesMax = 64;
  void add(ByteSpan piece);
  void attach(std::span<const int> fds);

  FrameHeaderBytes header_;
  std::array<iovec, kPiecesMax> pieces_;
  std::vector<std::byte> gathered_;  // a payload of very many pieces
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kDatagramFdsMax * sizeof(int))> control_;
  msghdr message_{};
};

// For recvmsg() with MSG_CMSG_CLOEXEC, of a datagram that may carry descriptors.
class ReceivedDatagram {
 public:
  explicit ReceivedDatagram(MutableByteSpan buffer);
  ReceivedDatagram(const ReceivedDatagram&) = delete;
  ReceivedDatagram& operator=(const ReceivedDatagram&) = delete;

  msghdr& message() { return message_; }
  // recvmsg() gave so many bytes. Takes what descriptors came.
  void received(std::size_t bytes);
  // kCorrupt: the datagram or its descriptors were more than there was room for.
  Result<ByteSpan> bytes() const;
  std::vector<UniqueFd> take_fds() { return std::move(fds_); }

 private:
  MutableByteSpan buffer_;
  std::size_t bytes_ = 0;
  iovec piece_;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kDatagramFdsMax * sizeof(int))> control_;
  msghdr message_{};
  std::vector<UniqueFd> fds_;
};

}  // namespace nmc::net
