// Teacher-forced logits of a checkpoint, for comparison with other implementations:
//
//   nmc_logits_tool FOLDER[+ADAPTER] f32|bf16 CHUNK ID...
//
// runs the prompt through the paged forward pass in chunks of CHUNK tokens (0: at once) and writes the logits of every
// position as little-endian f32 to standard output, [tokens][vocab]. A chunk gives logits of its last token only, so
// each position is the end of a pass over what precedes it in blocks already written. FOLDER may be a GGUF file;
// ADAPTER is a folder in PEFT's layout.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "model/adapter.h"
#include "model/checkpoint.h"
#include "model/decoder.h"
#include "model/gguf_model.h"

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

nmc::Result<std::unique_ptr<nmc::model::Decoder>> load_decoder(const std::string& path, nmc::Dtype dtype,
                                                               nmc::ThreadPool& pool) {
  using namespace nmc::model;
  if (path.ends_with(".gguf")) {
    NMC_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
    GgufWeights weights(file, pool);
    return Decoder::create(file.config(), weights, dtype, pool);
  }
  NMC_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(path));
  return Decoder::load(checkpoint, dtype, pool);
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
  const std::string spec = argv[1];
  const std::string folder = spec.substr(0, spec.find('+'));
  const auto decoder = load_decoder(folder, *dtype, pool);
  if (!decoder) return fail(decoder.error().message);
  std::shared_ptr<const nmc::model::Adapter> adapter;
  if (folder.size() < spec.size()) {
    auto loaded = nmc::model::Adapter::load(spec.substr(folder.size() + 1), (*decoder)->config(), pool);
    if (!loaded) return fail(loaded.error().message);
    adapter = *loaded;
  }

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
                                 .logits = logits.data(),
                                 .adapter = adapter.get()};
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
