#include "model/byte_tokenizer.h"

#include <array>

#include "base/check.h"

namespace nmc::model {
namespace {

// In the order of their ids, from kBos on.
constexpr std::array<std::string_view, ByteTokenizer::kVocabSize - ByteTokenizer::kBos> kControls = {
    "<bos>", "<eos>", "<system>", "<user>", "<assistant>", "<tool>", "<end>"};
static_assert(kControls[ByteTokenizer::kEnd - ByteTokenizer::kBos] == "<end>");

constexpr std::array<char, 256> kBytes = [] {
  std::array<char, 256> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i);
  return bytes;
}();

constexpr std::array<TokenId, 2> kEosIds = {ByteTokenizer::kEos, ByteTokenizer::kEnd};

// The control token that `text` begins with. None is a prefix of another.
std::optional<TokenId> control_at(std::string_view text) {
  for (std::size_t i = 0; i < kControls.size(); ++i) {
    if (text.starts_with(kControls[i])) return ByteTokenizer::kBos + static_cast<TokenId>(i);
  }
  return std::nullopt;
}

}  // namespace

std::vector<TokenId> ByteTokenizer::encode_parts(std::span<const TextPart> parts, bool add_bos) const {
  std::vector<TokenId> ids;
  if (add_bos && adds_bos()) ids.push_back(kBos);
  for (const auto& [text, parse_special] : parts) {
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (parse_special && text[at] == '<') {
        if (const std::optional<TokenId> control = control_at(text.substr(at))) {
          ids.push_back(*control);
          at += token_text(*control).size() - 1;
          continue;
        }
      }
      ids.push_back(static_cast<unsigned char>(text[at]));
    }
  }
  return ids;
}

std::string_view ByteTokenizer::token_text(TokenId id) const {
  if (id < kBytes.size()) return {&kBytes[id], 1};
  if (id < kVocabSize) return kControls[id - kBos];
  return {};
}

std::optional<TokenId> ByteTokenizer::special_id(std::string_view text) const {
  const std::optional<TokenId> control = control_at(text);
  return control && token_text(*control) == text ? control : std::nullopt;
}

std::span<const TokenId> ByteTokenizer::eos_ids() const { return kEosIds; }

Digest ByteTokenizer::digest() const {
  Sha256 hash;
  hash.update_field("nano-mooncake/byte-tokenizer/v1");
  for (const std::string_view control : kControls) hash.update_field(control);
  return hash.finish();
}

}  // namespace nmc::model
