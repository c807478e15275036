// Reading of the parts of `tokenizer.json` that stand around its model: normalizer, pre-tokenizer, post-processor and
// decoder. Steps that aren't understood are kUnsupported and named by their path.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "kv/prefix.h"
#include "model/normalizer.h"
#include "model/pre_tokenizer.h"
#include "model/token_decoder.h"

namespace nmc::model {

// `file` is the whole of tokenizer.json, an object.
Result<Normalizer> read_normalizer(const JsonFields& file);
Result<PreTokenizer> read_pre_tokenizer(const JsonFields& file);
Result<TokenDecoder> read_decoder(const JsonFields& file);
// The token that it puts in front of a text, one of `texts` (by id; "" is none).
Result<std::optional<kv::TokenId>> read_start_token(const JsonFields& file, std::span<const std::string> texts);

// Whether the last step makes bytes of text.
bool ends_in_bytes(const PreTokenizer& pre_tokenizer);

// A Split by that regular expression, with the matcher of its own that it may have.
Result<SplitStep> make_split(std::string_view pattern, SplitBehavior behavior, bool invert);

// Member `name` as an object; an error when it is something else.
Result<const Json*> json_part(const JsonFields& fields, std::string_view name);
// As JSON, short, for messages.
std::string printable(const std::string& text);

}  // namespace nmc::model
