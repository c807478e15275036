#include "net/client_handshake.h"

#include <string>

#include "net/handshake.h"

namespace nmc::net {
namespace {

class ClientHandshake {
 public:
  ClientHandshake(ClientWire& wire, const Address& address, std::string_view token, Nanos until)
      : wire_(wire), address_(address), token_(token), patience_{.progress = until, .until = until} {}

  Result<void> run() {
    NMC_ASSIGN_OR_RETURN(nonces_.client, random_nonce());
    NMC_ASSIGN_OR_RETURN(const ByteSpan body, ask(kOpHello, encode_hello({.nonce = nonces_.client})));
    NMC_ASSIGN_OR_RETURN(const Greeting greeting, decode_greeting(body));
    nonces_.server = greeting.nonce;
    if (greeting.token_wanted) return prove();
    if (!token_.empty() && address_.carrier == Carrier::kTcp) {
      return failure(ErrorCode::kPermissionDenied,
                     "the server asks for no token although this side has one: start it with the same {}",
                     kTokenVariable);
    }
    return {};
  }

 private:
  Result<void> prove() {
    if (token_.empty()) {
      return failure(ErrorCode::kPermissionDenied, "the server wants a token: set {} to the one it has",
                     kTokenVariable);
    }
    const Digest own = token_proof(token_, Prover::kClient, nonces_);
    NMC_ASSIGN_OR_RETURN(const ByteSpan body, ask(kOpProof, encode_proof(own)));
    NMC_ASSIGN_OR_RETURN(const Digest theirs, decode_proof(body));
    if (!equal_proofs(theirs, token_proof(token_, Prover::kServer, nonces_))) {
      return failure(ErrorCode::kPermissionDenied,
                     "the server didn't prove that it knows our token ({}): it is another", kTokenVariable);
    }
    return {};
  }

  // The body of the reply.
  Result<ByteSpan> ask(std::uint16_t op, ByteSpan body) {
    const FrameHeader header{.op = op, .body_bytes = static_cast<std::uint32_t>(body.size())};
    NMC_RETURN_IF_ERROR(wire_.send(header, body, {}, patience_));
    NMC_ASSIGN_OR_RETURN(const ClientWire::Received received, wire_.receive(patience_));
    const FrameHeader& reply = received.frame.header;
    if (reply.op != op || reply.request_id != 0 || reply.payload_bytes != 0) {
      return corrupt("reply of op {} in a handshake, expected op {}", reply.op, op);
    }
    if (reply.status == FrameStatus::kError) return Failure(decode_error(received.frame.body));
    return received.frame.body;
  }

  ClientWire& wire_;
  const Address& address_;
  const std::string_view token_;
  const Patience patience_;
  HandshakeNonces nonces_;
};

}  // namespace

Result<void> shake_hands_with_server(ClientWire& wire, const Address& address, std::string_view token, Nanos until) {
  Result<void> done = ClientHandshake(wire, address, token, until).run();
  if (done) return done;
  const std::string name = address.to_string();
  const Error& error = done.error();
  switch (error.code) {
    case ErrorCode::kCorrupt: return unavailable("{} is no server of nano-mooncake: {}", name, error.message);
    case ErrorCode::kDeadlineExceeded:
      return deadline_exceeded("{} took the connection and then said nothing: is it a nano-mooncake server?", name);
    default: return Failure(std::move(done).error().with_context(name));
  }
}

}  // namespace nmc::net
