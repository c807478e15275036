#include "model/model.h"

#include <algorithm>

#include "kernels/kernels.h"
#include "model/byte_tokenizer.h"
#include "model/cache_folder.h"
#include "model/checkpoint.h"
#include "model/gguf_model.h"
#include "model/gguf_tokenizer.h"
#include "model/tiny.h"

namespace nmc::model {
namespace {

Result<Model> load_tiny(Dtype dtype, ThreadPool& pool, const PackOptions& options) {
  Model model;
  model.name = "tiny";
  model.config = tiny_config();
  model.tokenizer = std::make_unique<ByteTokenizer>();
  model.chat_template = make_byte_chat_template();
  NMC_ASSIGN_OR_RETURN(model.decoder, make_tiny_decoder(dtype, pool, kTinySeed, options));
  return model;
}

Result<void> check_vocabulary(const Model& model, const Path& path) {
  if (model.tokenizer->vocab_size() <= model.config.vocab) return {};
  return invalid_argument("{}: the tokenizer has ids up to {}, expected fewer than the model's vocabulary of {}",
                          path.string(), model.tokenizer->vocab_size() - 1, model.config.vocab);
}

Result<Model> load_folder(const Path& folder, Dtype dtype, ThreadPool& pool, const PackOptions& options) {
  NMC_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(folder));
  Model model;
  model.name = folder.filename().empty() ? folder.parent_path().filename().string() : folder.filename().string();
  model.config = checkpoint.config();
  model.defaults = checkpoint.defaults();
  NMC_ASSIGN_OR_RETURN(model.tokenizer, load_tokenizer(folder));
  NMC_RETURN_IF_ERROR(check_vocabulary(model, folder));
  NMC_ASSIGN_OR_RETURN(model.chat_template, load_chat_template(folder));
  NMC_ASSIGN_OR_RETURN(model.decoder, Decoder::load(checkpoint, dtype, pool, options));
  return model;
}

// A token of the metadata by its id's name; "" when there is none.
std::string token_text(const GgufHeader& header, std::string_view key, const Tokenizer& tokenizer) {
  const auto id = JsonFields(header.metadata).integer(key, 0, static_cast<std::int64_t>(tokenizer.vocab_size()) - 1);
  return id ? std::string(tokenizer.token_text(static_cast<kv::TokenId>(*id))) : "";
}

// From tokenizer.chat_template.
Result<std::unique_ptr<ChatTemplate>> gguf_chat_template(const GgufHeader& header, const Path& path,
                                                         const Tokenizer& tokenizer) {
  Result<std::string> source = JsonFields(header.metadata).string_or("tokenizer.chat_template", "");
  if (!source) return Failure(std::move(source).error().with_context(path.string()));
  if (source->empty()) return no_chat_template(fmt::format("tokenizer.chat_template in {}", path.string()));
  return make_chat_template(*source, fmt::format("tokenizer.chat_template of {}", path.string()),
                            token_text(header, "tokenizer.ggml.bos_token_id", tokenizer),
                            token_text(header, "tokenizer.ggml.eos_token_id", tokenizer));
}

Result<Model> load_gguf(const Path& path, std::string name, Dtype dtype, ThreadPool& pool, const PackOptions& options) {
  NMC_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  Model model;
  model.name = std::move(name);
  model.config = file.config();
  NMC_ASSIGN_OR_RETURN(model.tokenizer, gguf_tokenizer(file.header(), path.string()));
  NMC_RETURN_IF_ERROR(check_vocabulary(model, path));
  NMC_ASSIGN_OR_RETURN(model.chat_template, gguf_chat_template(file.header(), path, *model.tokenizer));
  GgufWeights weights(file, pool);
  NMC_ASSIGN_OR_RETURN(model.decoder, Decoder::create(model.config, weights, dtype, pool, options));
  return model;
}

}  // namespace

std::vector<kv::TokenId> Model::eos_ids() const {
  std::vector<kv::TokenId> ids = config.eos_ids;
  for (const kv::TokenId id : tokenizer->eos_ids()) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

kv::Namespace Model::kv_namespace(std::uint32_t block_tokens) const {
  kv::Namespace ns;
  ns.weights = decoder->weights_digest();
  ns.config = config.digest_text();
  ns.tokenizer = tokenizer->digest().hex();
  ns.layout = decoder->kv_layout(block_tokens);
  ns.instruction_level = kernels::instruction_level();
  ns.numerics_version = kernels::kNumericsVersion;
  return ns;
}

Result<Model> load_model(const std::string& spec, Dtype dtype, ThreadPool& pool, const PackOptions& options) {
  if (spec == "tiny") return load_tiny(dtype, pool, options);
  if (spec == "smollm2") {
    NMC_ASSIGN_OR_RETURN(const Path file, smollm2_file());
    return load_gguf(file, spec, dtype, pool, options);
  }
  if (const Path path = spec; path.extension() == ".gguf")
    return load_gguf(path, path.stem().string(), dtype, pool, options);
  return load_folder(spec, dtype, pool, options);
}

}  // namespace nmc::model
