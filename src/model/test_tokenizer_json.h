// For tests: a small tokenizer.json to take apart.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/tokenizer_file.h"
#include "model/unicode.h"

namespace nmc::model {

// All bytes, then for each of `merges` ("a b", in the byte alphabet) the token it makes. Ids follow that order.
inline Json tokenizer_json(const std::vector<std::string>& merges) {
  Json vocab = Json::object();
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string text;
    append_utf8(text, byte_to_character(static_cast<std::uint8_t>(byte)));
    vocab[text] = byte;
  }
  for (const std::string& merge : merges) {
    std::string joined = merge;
    joined.erase(joined.find(' '), 1);
    if (!vocab.contains(joined)) vocab[joined] = vocab.size();
  }
  Json json;
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  json["added_tokens"] = Json::array();
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  json["post_processor"] = nullptr;
  json["decoder"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}};
  json["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", ""},
                   {"end_of_word_suffix", ""},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"vocab", vocab},
                   {"merges", merges}};
  return json;
}

inline Json added_token(kv::TokenId id, std::string_view content, bool special) {
  return {{"id", id},        {"content", std::string(content)}, {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", !special},          {"special", special}};
}

}  // namespace nmc::model
