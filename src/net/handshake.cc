#include "net/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <climits>
#include <cstring>

#include "base/check.h"
#include "base/syscall.h"

namespace nmc::net {
namespace {

Nonce take_nonce(BodyReader& reader) {
  Nonce nonce{};
  if (const ByteSpan bytes = reader.get_fixed("nonce", nonce.size()); !bytes.empty()) {
    std::memcpy(nonce.data(), bytes.data(), nonce.size());
  }
  return nonce;
}

}  // namespace

Result<Nonce> random_nonce() {
  Nonce nonce;
  // So few bytes come whole or not at all.
  if (retry_on_eintr([&] { return ::getrandom(nonce.data(), nonce.size(), 0); }) !=
      static_cast<ssize_t>(nonce.size())) {
    return Failure(os_error("getrandom", "for a handshake"));
  }
  return nonce;
}

std::vector<std::byte> encode_hello(const Hello& hello) {
  BodyWriter writer;
  writer.put_fixed(hello.nonce);
  return std::move(writer).take();
}

Result<Hello> decode_hello(ByteSpan body) {
  BodyReader reader(body);
  const Hello hello{.nonce = take_nonce(reader)};
  NMC_RETURN_IF_ERROR(reader.finish());
  return hello;
}

std::vector<std::byte> encode_greeting(const Greeting& greeting) {
  BodyWriter writer;
  writer.put_u8(greeting.token_wanted ? 1 : 0).put_fixed(greeting.nonce);
  return std::move(writer).take();
}

Result<Greeting> decode_greeting(ByteSpan body) {
  BodyReader reader(body);
  const std::uint8_t token_wanted = reader.get_u8("token wanted");
  const Nonce nonce = take_nonce(reader);
  NMC_RETURN_IF_ERROR(reader.finish());
  if (token_wanted > 1) return corrupt("greeting: \"token wanted\" is {}, expected 0 or 1", token_wanted);
  return Greeting{.token_wanted = token_wanted == 1, .nonce = nonce};
}

Digest token_proof(std::string_view token, Prover prover, const HandshakeNonces& nonces) {
  NMC_REQUIRE(!token.empty() && token.size() <= INT_MAX, "token.size()={}", token.size());
  BodyWriter message;
  message.put_fixed(as_bytes(prover == Prover::kClient ? "nmc client 1" : "nmc server 1"));
  message.put_fixed(nonces.server).put_fixed(nonces.client);
  Digest proof;
  unsigned size = 0;
  const unsigned char* done = ::HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
                                     reinterpret_cast<const unsigned char*>(message.bytes().data()),
                                     message.bytes().size(), proof.bytes.data(), &size);
  NMC_ASSERT(done != nullptr && size == proof.bytes.size());
  return proof;
}

bool equal_proofs(const Digest& a, const Digest& b) {
  return ::CRYPTO_memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
}

std::vector<std::byte> encode_proof(const Digest& proof) {
  BodyWriter writer;
  writer.put_fixed(std::as_bytes(std::span(proof.bytes)));
  return std::move(writer).take();
}

Result<Digest> decode_proof(ByteSpan body) {
  BodyReader reader(body);
  Digest proof;
  if (const ByteSpan bytes = reader.get_fixed("proof", proof.bytes.size()); !bytes.empty()) {
    std::memcpy(proof.bytes.data(), bytes.data(), bytes.size());
  }
  NMC_RETURN_IF_ERROR(reader.finish());
  return proof;
}

}  // namespace nmc::net
