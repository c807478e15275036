#include "http/page.h"

#include <fmt/core.h>
#include <openssl/evp.h>

#include <string>
#include <string_view>

#include "base/check.h"
#include "base/hash.h"

namespace nmc::http {
namespace {

constexpr std::string_view kDocument =
#include "nmc_page.inc"
    ;

// What stands between the first `open` and the `close` after it.
std::string_view between(std::string_view open, std::string_view close) {
  const std::size_t at = kDocument.find(open);
  NMC_ASSERT(at != kDocument.npos, "page without {}", open);
  const std::size_t begin = at + open.size();
  const std::size_t end = kDocument.find(close, begin);
  NMC_ASSERT(end != kDocument.npos, "page without {}", close);
  return kDocument.substr(begin, end - begin);
}

std::string base64(const Digest& digest) {
  std::string text(44, '\0');  // and a terminating zero, for which a string has room
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), digest.bytes.data(),
                  static_cast<int>(digest.bytes.size()));
  return text;
}

// Style and script are named by their digests, so that whatever a model's answer holds, nothing else runs.
std::string content_policy() {
  return fmt::format(
      "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; img-src data:; "
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      base64(sha256(between("<style>", "</style>"))), base64(sha256(between("<script type=\"module\">", "</script>"))));
}

}  // namespace

net::HttpResponse page_response() {
  static const std::string kPolicy = content_policy();
  return {.content_type = "text/html; charset=utf-8",
          .body = std::string(kDocument),
          .headers = {{"Content-Security-Policy", kPolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}}};
}

void answer_page(Call call) { call.exchange->respond(page_response()); }

}  // namespace nmc::http
