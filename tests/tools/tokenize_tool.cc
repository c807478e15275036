// nmc_tokenize_tool FOLDER: the tokenizer of a checkpoint folder, for tests that compare it with another one. Each line
// of standard input is a JSON object, each line of output its answer:
//   {"encode": "text", "parse_special": true, "add_bos": false}   [ids]
//   {"parts": [["text", parse_special], ...]}                     [ids]
//   {"encode_seconds": "text"}                                    what that took
//   {"decode": [ids], "skip_special": true}                       "text"
//   {"pieces": [ids], "skip_special": true}                       ["text of each id as it comes", ..., "the end"]
// Anything that is wrong ends it with one line on standard error.
#include <fmt/core.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "model/detokenizer.h"
#include "model/tokenizer.h"

namespace {

using nmc::Json;
using nmc::JsonFields;
using nmc::Result;
using nmc::model::TokenId;

Result<std::vector<TokenId>> read_ids(const JsonFields& request, std::string_view name) {
  NMC_ASSIGN_OR_RETURN(const std::vector<std::int64_t> numbers, request.integers(name));
  return std::vector<TokenId>(numbers.begin(), numbers.end());
}

Result<Json> encode_parts(const nmc::model::Tokenizer& tokenizer, const Json& request) {
  std::vector<nmc::model::TextPart> parts;
  for (const Json& part : request) {
    if (!part.is_array() || part.size() != 2 || !part[0].is_string() || !part[1].is_boolean()) {
      return nmc::invalid_argument("`parts`: expected [text, parse_special]");
    }
    parts.push_back({part[0].get_ref<const std::string&>(), part[1].get<bool>()});
  }
  return Json(tokenizer.encode_parts(parts));
}

Json pieces(const nmc::model::Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special) {
  nmc::model::Detokenizer detokenizer(tokenizer, skip_special);
  Json texts = Json::array();
  for (const TokenId id : ids) texts.push_back(detokenizer.push(id));
  texts.push_back(detokenizer.flush());
  return texts;
}

Result<Json> answer(const nmc::model::Tokenizer& tokenizer, const std::string& line) {
  NMC_ASSIGN_OR_RETURN(const Json json, nmc::parse_json(line, "request"));
  const JsonFields request(json);
  if (request.find("encode") != nullptr) {
    NMC_ASSIGN_OR_RETURN(const std::string text, request.string("encode"));
    NMC_ASSIGN_OR_RETURN(const bool parse_special, request.boolean_or("parse_special", true));
    NMC_ASSIGN_OR_RETURN(const bool add_bos, request.boolean_or("add_bos", false));
    return Json(tokenizer.encode(text, {.parse_special = parse_special, .add_bos = add_bos}));
  }
  if (const Json* parts = request.find("parts")) return encode_parts(tokenizer, *parts);
  if (request.find("encode_seconds") != nullptr) {
    NMC_ASSIGN_OR_RETURN(const std::string text, request.string("encode_seconds"));
    const auto start = std::chrono::steady_clock::now();
    const std::vector<TokenId> ids = tokenizer.encode(text, {.parse_special = true});
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    return Json(ids.empty() ? 0.0 : taken.count());
  }
  NMC_ASSIGN_OR_RETURN(const bool skip_special, request.boolean_or("skip_special", true));
  if (request.find("decode") != nullptr) {
    NMC_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, read_ids(request, "decode"));
    return Json(tokenizer.decode(ids, skip_special));
  }
  NMC_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, read_ids(request, "pieces"));
  return pieces(tokenizer, ids, skip_special);
}

Result<void> serve(const std::string& folder) {
  NMC_ASSIGN_OR_RETURN(const std::unique_ptr<nmc::model::Tokenizer> tokenizer, nmc::model::load_tokenizer(folder));
  for (std::string line; std::getline(std::cin, line);) {
    NMC_ASSIGN_OR_RETURN(const Json reply, answer(*tokenizer, line));
    std::cout << nmc::dump_json(reply) << '\n' << std::flush;
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: nmc_tokenize_tool FOLDER < requests\n");
    return 2;
  }
  const Result<void> served = serve(argv[1]);
  if (served) return 0;
  fmt::print(stderr, "{}\n", served.error().to_string());
  return 1;
}
