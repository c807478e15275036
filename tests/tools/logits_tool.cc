// Teacher-forced logits of a checkpoint, for comparison with other implementations:
//
//   nmc_logits_tool FOLDER f32|bf16 CHUNK ID...
//
// runs the prompt through the paged forward pass in chunks of CHUNK tokens (0: at once) and writes the logits of every
// position as little-endian f32 to standard output, [tokens][vocab]. A chunk gives logits of its last token only, so
// each position is the end of a pass over what precedes it in blocks already written.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "model/checkpoint.h"
#include "model/decoder.h"

namespace {

using nmc::kv::TokenId;

bool parse(const char* text, std::size_t& value) {
  const char* end = text + std::strlen(text);
  const auto [at, error] = std::from_chars(text, end, value);
  return error == std::errc() && at == end;
}

int fail(const std::string& message) {
  std::fprintf(stderr, "nmc_logits_tool: %s\n", message.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t chunk = 0;
  const auto dtype = argc > 2 ? nmc::parse_dtype(argv[2]) : std::nullopt;
  if (argc < 5 || !dtype || !parse(argv[3], chunk)) return fail("expected FOLDER f32|bf16 CHUNK ID...");
  std::vector<TokenId> tokens;
  for (int i = 4; i < argc; ++i) {
    std::size_t id = 0;
    if (!parse(argv[i], id)) return fail(std::string("not a token id: ") + argv[i]);
    tokens.push_back(static_cast<TokenId>(id));
  }

  nmc::ThreadPool pool(nmc::available_cpus());
  const auto checkpoint = nmc::model::Checkpoint::open(argv[1]);
  if (!checkpoint) return fail(checkpoint.error().message);
  const auto decoder = nmc::model::Decoder::load(*checkpoint, *dtype, pool);
  if (!decoder) return fail(decoder.error().message);

  constexpr std::uint32_t kBlockTokens = 16;
  const nmc::kv::KvLayout layout = (*decoder)->kv_layout(kBlockTokens);
  std::vector<std::vector<std::byte>> memory(layout.blocks_for(tokens.size()),
                                             std::vector<std::byte>(layout.block_bytes()));
  std::vector<std::byte*> blocks;
  for (auto& block : memory) blocks.push_back(block.data());

  nmc::model::Workspace workspace;
  std::vector<float> logits((*decoder)->config().vocab);
  const std::size_t step = chunk == 0 ? tokens.size() : chunk;
  const auto forward = [&](std::size_t begin, std::size_t end) {
    const nmc::model::Chunk part{.tokens = std::span(tokens).subspan(begin, end - begin),
                                 .start = begin,
                                 .blocks = std::span(blocks).first(layout.blocks_for(end)),
                                 .logits = logits.data()};
    (*decoder)->forward(pool, std::span(&part, 1), kBlockTokens, workspace);
  };
  for (std::size_t begin = 0; begin < tokens.size(); begin += step) {
    const std::size_t end = std::min(begin + step, tokens.size());
    for (std::size_t last = begin + 1; last <= end; ++last) {
      forward(begin, last);
      std::fwrite(logits.data(), sizeof(float), logits.size(), stdout);
    }
  }
  return 0;
}
