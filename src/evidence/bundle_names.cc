#include <utf8proc.h>

#include <cstdlib>
#include <map>
#include <memory>

#include "base/json.h"
#include "evidence/bundle.h"

namespace nmc::evidence {
namespace {

constexpr std::size_t kPrintedBytesMax = 200;

// Control and format characters drive terminals or reorder what is read; `name` is UTF-8.
bool has_invisible(std::string_view name) {
  const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(name.data());
  for (auto left = static_cast<utf8proc_ssize_t>(name.size()); left > 0;) {
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t size = utf8proc_iterate(at, left, &code);
    if (size <= 0) return true;
    const utf8proc_category_t category = utf8proc_category(code);
    if (category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_ZL ||
        category == UTF8PROC_CATEGORY_ZP)
      return true;
    at += size;
    left -= size;
  }
  return false;
}

struct Refusal {
  const char* kind = nullptr;  // null: the name is fine
  std::string why;
};

// A step of a path, between slashes.
Refusal refuse_step(std::string_view step, bool is_last) {
  if (step == ".." || step == ".") return {"path-escape", "a step that leaves its folder or stays in it"};
  if (step.empty()) return is_last ? Refusal{} : Refusal{"path-escape", "an empty step in its name"};
  if (step.back() == '.' || step.back() == ' ')
    return {"malformed", "a step that ends in a dot or a space, which some systems drop"};
  return {};
}

// Why a path could leave the folder it is unpacked to, or isn't one that every system can have.
Refusal refuse_name(std::string_view name) {
  if (name.empty()) return {"malformed", "no name"};
  if (name.size() > kZipNameBytesMax) return {"malformed", fmt::format("a name of {} bytes", name.size())};
  if (!is_valid_utf8(name)) return {"malformed", "its name isn't UTF-8"};
  if (has_invisible(name)) return {"malformed", "a control character in its name"};
  if (name.find('\\') != std::string_view::npos) return {"path-escape", "a backslash in its name"};
  if (name.front() == '/') return {"path-escape", "an absolute name"};
  if (name.find(':') != std::string_view::npos) return {"path-escape", "a colon in its name, as of a drive"};
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    Refusal refusal = refuse_step(name.substr(begin, end - begin), end == name.size());
    if (refusal.kind != nullptr) return refusal;
    begin = end + 1;
  }
  return {};
}

// Equal for names that some system takes for one: without case, and in one normal form.
std::string folded(std::string_view name) {
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(name.data()), static_cast<utf8proc_ssize_t>(name.size()), &out,
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPAT | UTF8PROC_COMPOSE | UTF8PROC_CASEFOLD));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(out, &std::free);
  return size < 0 ? std::string(name) : std::string(reinterpret_cast<const char*>(out), static_cast<std::size_t>(size));
}

}  // namespace

std::vector<ContainerFault> name_faults(const std::vector<std::string>& names) {
  std::vector<ContainerFault> faults;
  std::map<std::string, std::string> known;    // by folded name
  std::map<std::string, std::string> parents;  // folded folders, and whose they are
  for (const std::string& name : names) {
    Refusal refusal = refuse_name(name);
    if (refusal.kind != nullptr) {
      faults.push_back({refusal.kind, name, std::move(refusal.why)});
      continue;
    }
    std::string key = folded(name);
    while (key.ends_with('/')) key.pop_back();
    const auto [first, is_new] = known.try_emplace(key, name);
    if (!is_new)
      faults.push_back({"duplicate-name", name, fmt::format("the same file as {} on some system", first->second)});
    for (std::size_t at = key.find('/'); at != std::string::npos; at = key.find('/', at + 1))
      parents.try_emplace(key.substr(0, at), name);
  }
  for (const auto& [key, name] : known) {
    if (const auto parent = parents.find(key); parent != parents.end())
      faults.push_back({"duplicate-name", name, fmt::format("a file, and the folder of {}", parent->second)});
  }
  return faults;
}

std::string printable_name(std::string_view name) {
  const bool only_ascii = !is_valid_utf8(name) || has_invisible(name);
  const std::string text = Json(std::string(name)).dump(-1, ' ', only_ascii, Json::error_handler_t::replace);
  std::string shown = text.substr(1, text.size() - 2);
  if (shown.size() <= kPrintedBytesMax) return shown;
  shown.resize(kPrintedBytesMax);
  while (!is_valid_utf8(shown)) shown.pop_back();
  return shown + "...";
}

}  // namespace nmc::evidence
