#include "http/route.h"

#include <array>

#include "http/completion_routes.h"
#include "http/openapi.h"
#include "http/operations.h"
#include "http/page.h"
#include "http/service_routes.h"
#include "http/token_routes.h"

namespace nmc::http {

std::span<const Route> all_routes() {
  static constexpr std::array kRoutes = std::to_array<Route>({
      {"POST", "/v1/chat/completions", Access::kKey, answer_chat_completions, chat_completions_operation},
      {"POST", "/v1/completions", Access::kKey, answer_completions, completions_operation},
      {"GET", "/v1/models", Access::kKey, answer_models, models_operation},
      {"GET", "/v1/metrics", Access::kKey, answer_metrics_document, metrics_document_operation},
      {"POST", "/tokenize", Access::kKey, answer_tokenize, tokenize_operation},
      {"POST", "/detokenize", Access::kKey, answer_detokenize, detokenize_operation},
      {"GET", "/metrics", Access::kOpen, answer_prometheus, prometheus_operation},
      {"GET", "/load", Access::kOpen, answer_load, load_operation},
      {"GET", "/healthz", Access::kOpen, answer_healthz, healthz_operation},
      {"GET", "/health", Access::kOpen, answer_health, health_operation},
      {"GET", "/ping", Access::kOpen, answer_health, ping_operation},
      {"POST", "/ping", Access::kOpen, answer_health, ping_operation},
      {"GET", "/version", Access::kOpen, answer_version, version_operation},
      {"GET", "/openapi.json", Access::kOpen, answer_openapi, openapi_operation},
      {"GET", "/", Access::kOpen, answer_page, page_operation},
  });
  return kRoutes;
}

}  // namespace nmc::http
