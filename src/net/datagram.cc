#include "net/datagram.h"

#include <cstring>
#include <utility>

#include "base/check.h"

namespace nmc::net {

DatagramToSend::DatagramToSend(const FrameHeader& header, ByteSpan body, std::span<const ByteSpan> payload,
                               std::span<const int> fds)
    : header_(encode_frame_header(header)) {
  NMC_REQUIRE(check_datagram_size(body, payload).has_value());
  message_.msg_iov = pieces_.data();
  add(header_);
  add(body);
  if (payload.size() + message_.msg_iovlen <= kPiecesMax) {
    for (const ByteSpan piece : payload) add(piece);
  } else {
    for (const ByteSpan piece : payload) gathered_.insert(gathered_.end(), piece.begin(), piece.end());
    add(gathered_);
  }
  if (!fds.empty()) attach(fds);
}

void DatagramToSend::add(ByteSpan piece) {
  pieces_[message_.msg_iovlen++] = {const_cast<std::byte*>(piece.data()), piece.size()};
}

void DatagramToSend::attach(std::span<const int> fds) {
  NMC_REQUIRE(fds.size() <= kDatagramFdsMax, "fds={}", fds.size());
  message_.msg_control = control_.data();
  message_.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* control = CMSG_FIRSTHDR(&message_);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(control), fds.data(), fds.size_bytes());
}

ReceivedDatagram::ReceivedDatagram(MutableByteSpan buffer) : buffer_(buffer), piece_{buffer.data(), buffer.size()} {
  message_.msg_iov = &piece_;
  message_.msg_iovlen = 1;
  message_.msg_control = control_.data();
  message_.msg_controllen = control_.size();
}

void ReceivedDatagram::received(std::size_t bytes) {
  bytes_ = bytes;
  for (cmsghdr* control = CMSG_FIRSTHDR(&message_); control != nullptr; control = CMSG_NXTHDR(&message_, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof fd, sizeof fd);
      fds_.emplace_back(fd);
    }
  }
}

Result<ByteSpan> ReceivedDatagram::bytes() const {
  if ((message_.msg_flags & MSG_TRUNC) != 0) {
    return corrupt("message of more than {} bytes over a Unix socket", buffer_.size());
  }
  if ((message_.msg_flags & MSG_CTRUNC) != 0) {
    return corrupt("message with more than {} descriptors, or more than this process may open", kDatagramFdsMax);
  }
  return ByteSpan(buffer_.data(), bytes_);
}

}  // namespace nmc::net
