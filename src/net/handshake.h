// How a connection begins, on either carrier. Each line is a frame; versions are exchanged by their headers.
//
//   client  kOpHello   nonce[32]
//   server  kOpHello   token wanted u8 | nonce[32]           or an error: why it takes nobody
//   client  kOpProof   proof[32]                             these two only if a token is wanted
//   server  kOpProof   proof[32]                             or an error: wrong token
//
//   proof = HMAC-SHA256(token, "nmc client 1" or "nmc server 1" || server's nonce || client's nonce)
//
// The client speaks first, so that a stranger on the port (an HTTP server, say) has something to answer and shows
// itself. Both sides prove that they have the token and neither shows it; the server only after the client did. That
// keeps strangers out. It doesn't hide or protect what is said afterwards: on a network that isn't trusted, TLS does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "net/body.h"
#include "net/frame.h"

namespace nmc::net {

constexpr std::uint16_t kOpHello = kReservedOps;
constexpr std::uint16_t kOpProof = kReservedOps + 1;
// Named in errors, so that people know what to set; nothing in net reads the environment.
constexpr std::string_view kTokenVariable = "NANO_MOONCAKE_TOKEN";

using Nonce = std::array<std::byte, 32>;
Result<Nonce> random_nonce();

struct Hello {
  Nonce nonce{};
};
std::vector<std::byte> encode_hello(const Hello& hello);
Result<Hello> decode_hello(ByteSpan body);

struct Greeting {
  bool token_wanted = false;
  Nonce nonce{};
};
std::vector<std::byte> encode_greeting(const Greeting& greeting);
Result<Greeting> decode_greeting(ByteSpan body);

// Of one handshake. `token` is not empty.
struct HandshakeNonces {
  Nonce server{};
  Nonce client{};
};
enum class Prover { kClient, kServer };
Digest token_proof(std::string_view token, Prover prover, const HandshakeNonces& nonces);
// Takes the same time wherever the two differ.
bool equal_proofs(const Digest& a, const Digest& b);
std::vector<std::byte> encode_proof(const Digest& proof);
Result<Digest> decode_proof(ByteSpan body);

}  // namespace nmc::net
