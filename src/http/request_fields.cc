#include "http/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "http/try.h"

namespace nmc::http {

ApiResult<Json> parse_body(std::string_view body) {
  auto json = parse_json(body, "request body");
  if (!json) return ApiFailure(to_api_error(std::move(json).error()));
  if (json->is_object()) return std::move(*json);
  return ApiFailure(ApiError{400, fmt::format("request body: expected an object, got {}", json_type_name(*json)), ""});
}

ApiResult<std::size_t> parse_model_field(const JsonFields& fields, const std::vector<std::string>& models) {
  std::string name;
  NMC_TRY(take(fields.string_or("model", models.front()), "model", name));
  const auto it = std::ranges::find(models, name);
  if (it != models.end()) return static_cast<std::size_t>(it - models.begin());
  return ApiFailure(ApiError{
      404, fmt::format("the model \"{}\" is not served here, only \"{}\" is", name, fmt::join(models, "\" and \"")),
      "model"});
}

ApiResult<std::vector<engine::TokenId>> parse_token_ids(const Json& array, [[maybe_unused]] std::string_view path,
                                                        [[maybe_unused]] std::string_view param) {
  std::vector<engine::TokenId> ids;
  ids.reserve(array.size());
  for (std::size_t i = 0; i < array.size(); ++i) {
    const Json& item = array[i];
#ifndef NMC_PLANT_REQUEST_BODY  // defined only to show that fuzzing would find a missing check
    if (!item.is_number_unsigned() || item.get<std::uint64_t>() > std::numeric_limits<engine::TokenId>::max()) {
      return ApiFailure(ApiError{400,
                                 fmt::format("`{}[{}]`: expected a token id, got {}", path, i, json_type_name(item)),
                                 std::string(param)});
    }
#endif
    ids.push_back(static_cast<engine::TokenId>(item.get_ref<const Json::number_unsigned_t&>()));
  }
  return ids;
}

}  // namespace nmc::http
