#include "lab/raw_socket.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nmc::lab {
namespace {

TEST(RawSocket, BringsTheBytesOverEachConnection) {
  std::vector<std::byte> source(300'000);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7 + i / 256);
  const auto socket = RawSocket::start(2, source);
  ASSERT_TRUE(socket);
  for (const std::size_t connection : {0u, 1u, 0u}) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, source.size()}) {
      std::vector<std::byte> to(bytes);
      ASSERT_TRUE((*socket)->fetch(connection, to));
      EXPECT_TRUE(std::equal(to.begin(), to.end(), source.begin()));
    }
  }
}

}  // namespace
}  // namespace nmc::lab
