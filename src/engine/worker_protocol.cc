#include "engine/worker_protocol.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

namespace nmc::engine {
namespace {

using net::BodyReader;
using net::BodyWriter;

void put_double(BodyWriter& body, double value) { body.put_u64(std::bit_cast<std::uint64_t>(value)); }
double get_double(BodyReader& body, std::string_view field) { return std::bit_cast<double>(body.get_u64(field)); }
void put_float(BodyWriter& body, float value) { body.put_u32(std::bit_cast<std::uint32_t>(value)); }
float get_float(BodyReader& body, std::string_view field) { return std::bit_cast<float>(body.get_u32(field)); }
void put_bool(BodyWriter& body, bool value) { body.put_u8(value ? 1 : 0); }
bool get_bool(BodyReader& body, std::string_view field) { return body.get_u8(field) != 0; }

void put_digest(BodyWriter& body, const Digest& digest) { body.put_fixed(std::as_bytes(std::span(digest.bytes))); }
Digest get_digest(BodyReader& body, std::string_view field) {
  Digest digest{};
  const net::ByteSpan bytes = body.get_fixed(field, digest.bytes.size());
  if (!bytes.empty()) std::memcpy(digest.bytes.data(), bytes.data(), bytes.size());
  return digest;
}

// The last of an enumeration's values, so that a number beyond it is taken for that instead of for nothing.
template <typename Enum>
Enum get_enum(BodyReader& body, std::string_view field, Enum last) {
  return std::min(static_cast<Enum>(body.get_u8(field)), last);
}

// In the order of the struct: writer and reader go through one list.
template <typename Metrics, typename Number, typename Count>
void each_metric(Metrics& m, const Number& number, const Count& count) {
  for (auto* value : {&m.queue_ms, &m.lookup_ms, &m.restore_ms, &m.prefill_ms, &m.export_ms, &m.encode_ms,
                      &m.transport_ms, &m.unpack_ms, &m.import_ms, &m.ttft_ms, &m.decode_ms, &m.e2e_ms}) {
    number(*value);
  }
  for (auto* value :
       {&m.prompt_tokens, &m.computed_tokens, &m.saved_tokens, &m.output_tokens, &m.hit_blocks, &m.preemptions}) {
    count(*value);
  }
  count(m.snapshot_bytes);
  count(m.transfer_bytes);
}

void put_metrics(BodyWriter& body, const RequestMetrics& metrics) {
  each_metric(
      metrics, [&](double value) { put_double(body, value); }, [&](std::uint64_t value) { body.put_u64(value); });
  body.put_u8(static_cast<std::uint8_t>(metrics.cache_source)).put_string(metrics.transfer_carrier);
}

RequestMetrics get_metrics(BodyReader& body) {
  RequestMetrics metrics;
  each_metric(
      metrics, [&](double& value) { value = get_double(body, "metric"); },
      [&](auto& value) { value = body.get_u64("metric"); });
  metrics.cache_source = get_enum(body, "cache source", CacheSource::kMixed);
  metrics.transfer_carrier = body.get_string("carrier");
  return metrics;
}

void put_sampling(BodyWriter& body, const SamplingParams& params) {
  for (const float value : {params.temperature, params.top_p, params.min_p, params.presence_penalty,
                            params.frequency_penalty, params.repetition_penalty}) {
    put_float(body, value);
  }
  body.put_u32(params.top_k).put_u64(params.seed);
  body.put_u32(static_cast<std::uint32_t>(params.logit_bias.size()));
  for (const LogitBias& bias : params.logit_bias) {
    body.put_u32(bias.id);
    put_float(body, bias.bias);
  }
  put_tokens(body, params.allowed_ids);
  body.put_u32(static_cast<std::uint32_t>(params.bad_sequences.size()));
  for (const std::vector<TokenId>& bad : params.bad_sequences) put_tokens(body, bad);
}

SamplingParams get_sampling(BodyReader& body) {
  SamplingParams params;
  for (float* value : {&params.temperature, &params.top_p, &params.min_p, &params.presence_penalty,
                       &params.frequency_penalty, &params.repetition_penalty}) {
    *value = get_float(body, "sampling");
  }
  params.top_k = body.get_u32("top_k");
  params.seed = body.get_u64("seed");
  params.logit_bias.resize(body.get_count("biases", 8));
  for (LogitBias& bias : params.logit_bias) {
    bias.id = body.get_u32("id");
    bias.bias = get_float(body, "bias");
  }
  params.allowed_ids = get_tokens(body);
  params.bad_sequences.resize(body.get_count("bad words", 4));
  for (std::vector<TokenId>& bad : params.bad_sequences) bad = get_tokens(body);
  return params;
}

void put_logprobs(BodyWriter& body, std::span<const Logprob> logprobs) {
  body.put_u32(static_cast<std::uint32_t>(logprobs.size()));
  for (const Logprob& one : logprobs) {
    body.put_u32(one.id);
    put_float(body, one.logprob);
  }
}
std::vector<Logprob> get_logprobs(BodyReader& body) {
  std::vector<Logprob> logprobs(body.get_count("logprobs", 8));
  for (Logprob& one : logprobs) {
    one.id = body.get_u32("id");
    one.logprob = get_float(body, "logprob");
  }
  return logprobs;
}

// Of std::variant, as a number on the wire.
template <typename Event, std::size_t kIndex = 0>
constexpr std::uint8_t kind_of() {
  if constexpr (std::is_same_v<Event, std::variant_alternative_t<kIndex, WorkerEvent>>)
    return kIndex;
  else
    return kind_of<Event, kIndex + 1>();
}

void put_fields(BodyWriter& body, const event::Admitted& e) { body.put_u64(e.ticket); }
void put_fields(BodyWriter& body, const event::Token& e) {
  body.put_u64(e.ticket).put_u32(e.token.id);
  put_logprobs(body, e.token.logprobs);
}
void put_fields(BodyWriter& body, const event::Prompt& e) {
  body.put_u64(e.ticket).put_u32(static_cast<std::uint32_t>(e.tokens.size()));
  for (const PromptToken& token : e.tokens) {
    body.put_u32(token.position).put_u32(token.rank);
    put_logprobs(body, token.logprobs);
  }
}
void put_fields(BodyWriter& body, const event::Names& e) {
  body.put_u64(e.ticket);
  put_names(body, e.names);
}
void put_fields(BodyWriter& body, const event::Prefilled& e) {
  body.put_u64(e.ticket);
  put_bool(body, e.handed_over);
  body.put_u64(e.kv_tokens);
  put_metrics(body, e.metrics);
}
void put_fields(BodyWriter& body, const event::Finished& e) {
  body.put_u64(e.ticket).put_u8(static_cast<std::uint8_t>(e.reason));
  put_bool(body, e.error.has_value());
  if (e.error) body.put_bytes(net::encode_error(*e.error));
  put_metrics(body, e.metrics);
}
void put_fields(BodyWriter& body, const event::Imported& e) { body.put_u64(e.handover); }

event::Token get_token(BodyReader& body) {
  event::Token e{.ticket = body.get_u64("ticket")};
  e.token.id = body.get_u32("id");
  e.token.logprobs = get_logprobs(body);
  return e;
}
event::Prompt get_prompt(BodyReader& body) {
  event::Prompt e{.ticket = body.get_u64("ticket")};
  e.tokens.resize(body.get_count("prompt tokens", 12));
  for (PromptToken& token : e.tokens) {
    token.position = body.get_u32("position");
    token.rank = body.get_u32("rank");
    token.logprobs = get_logprobs(body);
  }
  return e;
}
event::Prefilled get_prefilled(BodyReader& body) {
  event::Prefilled e{.ticket = body.get_u64("ticket")};
  e.handed_over = get_bool(body, "handed over");
  e.kv_tokens = body.get_u64("tokens");
  e.metrics = get_metrics(body);
  return e;
}
event::Finished get_finished(BodyReader& body) {
  event::Finished e{.ticket = body.get_u64("ticket")};
  e.reason = get_enum(body, "reason", FinishReason::kFailed);
  if (get_bool(body, "has error")) e.error = net::decode_error(body.get_bytes("error"));
  e.metrics = get_metrics(body);
  return e;
}

}  // namespace

void put_front_hello(BodyWriter& body, const FrontHello& hello) {
  put_digest(body, hello.ns);
  body.put_string(hello.layout).put_string(hello.transfer);
  body.put_u64(static_cast<std::uint64_t>(hello.heartbeat.count()));
}
FrontHello get_front_hello(BodyReader& body) {
  FrontHello hello;
  hello.ns = get_digest(body, "namespace");
  hello.layout = body.get_string("layout");
  hello.transfer = body.get_string("transfer");
  hello.heartbeat = Nanos(static_cast<std::int64_t>(body.get_u64("heartbeat")));
  return hello;
}

void put_worker_hello(BodyWriter& body, const WorkerHello& hello) {
  body.put_string(hello.name).put_string(hello.role).put_u64(static_cast<std::uint64_t>(hello.pid));
  body.put_u64(hello.session).put_string(hello.store).put_string(hello.kv_address);
  body.put_u64(static_cast<std::uint64_t>(hello.now_ns));
}
WorkerHello get_worker_hello(BodyReader& body) {
  WorkerHello hello;
  hello.name = body.get_string("name");
  hello.role = body.get_string("role");
  hello.pid = static_cast<std::int64_t>(body.get_u64("pid"));
  hello.session = body.get_u64("session");
  hello.store = body.get_string("store");
  hello.kv_address = body.get_string("kv address");
  hello.now_ns = static_cast<std::int64_t>(body.get_u64("now"));
  return hello;
}

void put_assignment(BodyWriter& body, const Assignment& assignment) {
  const GenerateRequest& request = assignment.request;
  body.put_u64(assignment.ticket).put_u64(assignment.arrival);
  body.put_string(request.id);
  put_sampling(body, request.sampling);
  body.put_u64(request.max_tokens).put_u64(request.min_tokens);
  put_bool(body, request.ignore_eos);
  put_tokens(body, request.stop_ids);
  for (const std::optional<std::uint32_t>& wanted : {request.logprobs, request.prompt_logprobs}) {
    put_bool(body, wanted.has_value());
    body.put_u32(wanted.value_or(0));
  }
  body.put_string(request.cache_salt).put_string(assignment.adapter);
  put_bool(body, assignment.whole);
  body.put_u64(assignment.handover).put_string(assignment.source).put_u64(assignment.kv_tokens);
}
Assignment get_assignment(BodyReader& body) {
  Assignment assignment;
  GenerateRequest& request = assignment.request;
  assignment.ticket = body.get_u64("ticket");
  assignment.arrival = body.get_u64("arrival");
  request.id = body.get_string("id");
  request.sampling = get_sampling(body);
  request.max_tokens = body.get_u64("max tokens");
  request.min_tokens = body.get_u64("min tokens");
  request.ignore_eos = get_bool(body, "ignore eos");
  request.stop_ids = get_tokens(body);
  for (std::optional<std::uint32_t>* wanted : {&request.logprobs, &request.prompt_logprobs}) {
    const bool has = get_bool(body, "has logprobs");
    const std::uint32_t count = body.get_u32("logprobs");
    if (has) *wanted = count;
  }
  request.cache_salt = body.get_string("salt");
  assignment.adapter = body.get_string("adapter");
  assignment.whole = get_bool(body, "whole");
  assignment.handover = body.get_u64("hand-over");
  assignment.source = body.get_string("source");
  assignment.kv_tokens = body.get_u64("kv tokens");
  return assignment;
}

void put_tokens(BodyWriter& body, std::span<const TokenId> tokens) { body.put_bytes(std::as_bytes(tokens)); }
std::vector<TokenId> get_tokens(BodyReader& body) {
  const net::ByteSpan bytes = body.get_bytes("tokens");
  std::vector<TokenId> tokens(bytes.size() / sizeof(TokenId));
  if (!tokens.empty()) std::memcpy(tokens.data(), bytes.data(), tokens.size() * sizeof(TokenId));
  return tokens;
}

void put_names(BodyWriter& body, std::span<const BlockName> names) {
  body.put_u32(static_cast<std::uint32_t>(names.size()));
  for (const BlockName& name : names) {
    put_digest(body, name.key);
    body.put_u64(name.generation);
    put_bool(body, name.sealed);
  }
}
std::vector<BlockName> get_names(BodyReader& body) {
#if defined(NMC_PLANT_WORKER_MESSAGE)  // a deliberate mistake, to see that fuzzing finds it
  std::vector<BlockName> names(body.get_u32("names"));
#else
  std::vector<BlockName> names(body.get_count("names", 41));
#endif
  for (BlockName& name : names) {
    name.key = get_digest(body, "key");
    name.generation = body.get_u64("generation");
    name.sealed = get_bool(body, "sealed");
  }
  return names;
}

void put_pull_reply(BodyWriter& body, const PullReply& reply) {
  body.put_u8(static_cast<std::uint8_t>(reply.state)).put_u64(reply.written).put_u64(reply.total);
  body.put_u64(static_cast<std::uint64_t>(reply.waited.count()));
}
PullReply get_pull_reply(BodyReader& body) {
  PullReply reply;
  reply.state = get_enum(body, "state", PullState::kFailed);
  reply.written = body.get_u64("written");
  reply.total = body.get_u64("total");
  reply.waited = Nanos(static_cast<std::int64_t>(body.get_u64("waited")));
  return reply;
}

void put_figures(BodyWriter& body, const WorkerFigures& figures) {
  body.put_u64(figures.queued).put_u64(figures.running);
  put_bool(body, figures.lacks_memory);
  body.put_u64(static_cast<std::uint64_t>(figures.busy_ns)).put_u64(static_cast<std::uint64_t>(figures.wall_ns));
  body.put_u64(figures.steps).put_u64(figures.preemptions).put_u64(figures.blocks_held);
  body.put_u64(figures.exports).put_u64(figures.imports);
}
WorkerFigures get_figures(BodyReader& body) {
  WorkerFigures figures;
  figures.queued = body.get_u64("queued");
  figures.running = body.get_u64("running");
  figures.lacks_memory = get_bool(body, "lacks memory");
  figures.busy_ns = static_cast<std::int64_t>(body.get_u64("busy"));
  figures.wall_ns = static_cast<std::int64_t>(body.get_u64("wall"));
  figures.steps = body.get_u64("steps");
  figures.preemptions = body.get_u64("preemptions");
  figures.blocks_held = body.get_u64("blocks held");
  figures.exports = body.get_u64("exports");
  figures.imports = body.get_u64("imports");
  return figures;
}

void put_event(BodyWriter& body, const WorkerEvent& event) {
  body.put_u8(static_cast<std::uint8_t>(event.index()));
  std::visit([&](const auto& e) { put_fields(body, e); }, event);
}
std::optional<WorkerEvent> get_event(BodyReader& body) {
  switch (body.get_u8("event")) {
    case kind_of<event::Admitted>(): return event::Admitted{body.get_u64("ticket")};
    case kind_of<event::Token>(): return get_token(body);
    case kind_of<event::Names>(): {
      event::Names e{.ticket = body.get_u64("ticket")};
      e.names = get_names(body);
      return e;
    }
    case kind_of<event::Prefilled>(): return get_prefilled(body);
    case kind_of<event::Finished>(): return get_finished(body);
    case kind_of<event::Prompt>(): return get_prompt(body);
    case kind_of<event::Imported>(): return event::Imported{body.get_u64("hand-over")};
    default: return std::nullopt;
  }
}

}  // namespace nmc::engine
