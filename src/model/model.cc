#include "model/model.h"

#include <algorithm>

#include "kernels/kernels.h"
#include "model/byte_tokenizer.h"
#include "model/checkpoint.h"
#include "model/tiny.h"

namespace nmc::model {
namespace {

Result<Model> load_tiny(Dtype dtype, ThreadPool& pool) {
  Model model;
  model.name = "tiny";
  model.config = tiny_config();
  model.tokenizer = std::make_unique<ByteTokenizer>();
  model.chat_template = make_byte_chat_template();
  NMC_ASSIGN_OR_RETURN(model.decoder, make_tiny_decoder(dtype, pool));
  return model;
}

Result<Model> load_folder(const Path& folder, Dtype dtype, ThreadPool& pool) {
  NMC_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(folder));
  Model model;
  model.name = folder.filename().empty() ? folder.parent_path().filename().string() : folder.filename().string();
  model.config = checkpoint.config();
  model.defaults = checkpoint.defaults();
  NMC_ASSIGN_OR_RETURN(model.tokenizer, load_tokenizer(folder));
  if (model.tokenizer->vocab_size() > model.config.vocab) {
    return invalid_argument("{}: tokenizer.json has ids up to {}, expected fewer than `vocab_size` {} of config.json",
                            folder.string(), model.tokenizer->vocab_size() - 1, model.config.vocab);
  }
  NMC_ASSIGN_OR_RETURN(model.chat_template, load_chat_template(folder));
  NMC_ASSIGN_OR_RETURN(model.decoder, Decoder::load(checkpoint, dtype, pool));
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

Result<Model> load_model(const std::string& spec, Dtype dtype, ThreadPool& pool) {
  if (spec == "tiny") return load_tiny(dtype, pool);
  return load_folder(spec, dtype, pool);
}

}  // namespace nmc::model
